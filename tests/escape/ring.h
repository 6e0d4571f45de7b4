// SPDX-License-Identifier: Apache-2.0
// A small io_uring of our own: made by one process, perhaps used by another.
#pragma once

#include <linux/io_uring.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { kRingEntries = 4 };

// io_uring_setup; -1 and errno when the kernel has none or refuses.
int ring_make(struct io_uring_params* params);

// Opens `path` with `flags` through the ring. Returns the descriptor or a negative errno.
// `params` as ring_make filled them, also when another process did.
int ring_open(int ring, const struct io_uring_params* params, const char* path, int flags);

#ifdef __cplusplus
}
#endif

// SPDX-License-Identifier: Apache-2.0
// Reads this process's memory at addresses that may be wrong: the kernel copies, and answers with
// an error where a load would crash.
#pragma once

#include <stddef.h>

namespace corral::shim {

// Copies up to `bytes` bytes; how many could be read from the beginning on. `pid`: this process's
// number, for who reads often and has asked for it.
size_t safe_read(void* to, const void* from, size_t bytes, long pid);
size_t safe_read(void* to, const void* from, size_t bytes);

inline bool safe_read_all(void* to, const void* from, size_t bytes) {
  return safe_read(to, from, bytes) == bytes;
}

}  // namespace corral::shim

// SPDX-License-Identifier: Apache-2.0
// The seccomp filter: closes what Landlock cannot see. Assembled here, readable by a test.
#pragma once

#include <linux/filter.h>

#include <span>
#include <vector>

#include "base/error.h"

namespace corral::isolate {

struct FilterOptions {
  // Also refuse the ways out of a cgroup that no file rule sees: clone3 (CLONE_INTO_CGROUP) and
  // bpf (BPF_PROG_DETACH). For a root job; libc falls back to clone.
  bool cgroup_exits = false;
};

// The program for every system call convention of this processor (x86-64: also i386 and x32;
// AArch64: also 32-bit ARM). Refused, all else allowed:
//   open, openat with access mode 3    EACCES   needs no Landlock right, yet opens the node
//   openat2                            ENOSYS   its flags lie in memory; libraries fall back
//   io_uring_setup, _enter, _register  ENOSYS   opens files out of a filter's sight
//   open_by_handle_at                  EPERM    root: opens by handle, in mode 3 too
//   mknod, mknodat of a device         EPERM    root: a second node of the number
//   x32 and unknown conventions        ENOSYS
std::vector<sock_filter> build_filter(const FilterOptions& options);

// Child: needs no_new_privs or CAP_SYS_ADMIN.
Result<void> enter_filter(std::span<const sock_filter> filter);

bool filter_available();

}  // namespace corral::isolate

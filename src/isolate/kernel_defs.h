// SPDX-License-Identifier: Apache-2.0
// Kernel interface values newer than the headers we build with; each names the kernel that brought
// it.
#pragma once

#include <linux/landlock.h>
#include <sys/syscall.h>

#include <cstdint>

#ifndef LANDLOCK_ACCESS_FS_IOCTL_DEV
#define LANDLOCK_ACCESS_FS_IOCTL_DEV (1ULL << 15)  // 6.10, ABI 5
#endif
#ifndef LANDLOCK_SCOPE_SIGNAL
#define LANDLOCK_SCOPE_SIGNAL (1ULL << 1)  // 6.12, ABI 6
#endif

#ifndef NSFS_MAGIC
#define NSFS_MAGIC 0x6e736673
#endif
#ifndef PIDFS_MAGIC
#define PIDFS_MAGIC 0x50494446  // 6.9; pidfds were anonymous inodes before
#endif

namespace corral::isolate {

// struct landlock_ruleset_attr as of ABI 6. The kernel takes shorter ones: older ABIs get the first
// 8 bytes (ABI 1-3) or 16 (ABI 4-5).
struct LandlockRulesetAttr {
  std::uint64_t handled_access_fs = 0;
  std::uint64_t handled_access_net = 0;
  std::uint64_t scoped = 0;
};

}  // namespace corral::isolate

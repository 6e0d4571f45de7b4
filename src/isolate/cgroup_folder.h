// SPDX-License-Identifier: Apache-2.0
// A job's own cgroup folder, v1 or v2: made below the current group, joined, and removed again.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace corral::isolate {

class CgroupFolder {
 public:
  CgroupFolder() = default;
  CgroupFolder(CgroupFolder&& other) noexcept;
  CgroupFolder& operator=(CgroupFolder&& other) noexcept;
  CgroupFolder(const CgroupFolder&) = delete;
  CgroupFolder& operator=(const CgroupFolder&) = delete;
  // Removes the folder if it is empty and this is the process that made it.
  ~CgroupFolder();

  // Makes `parent`/corral-<pidns>-<pid>-<starttime>, named for the calling process and its pid
  // namespace (the inode of /proc/self/ns/pid).
  static Result<CgroupFolder> create(const std::string& parent);

  explicit operator bool() const { return !path_.empty(); }
  const std::string& path() const { return path_; }

  // fork(2) whose child starts in the group: 0 in the child, its pid in the parent. v2 only; where
  // the kernel has no CLONE_INTO_CGROUP (5.7) or refuses it, the child starts outside.
  // Moving a process costs a grace period of the kernel, 10 to 20 ms; starting it there costs none.
  Result<pid_t> fork_into() const;

  // Moves the calling process in, unless it started there: it writes itself to the cgroup.procs
  // that the parent opened, so that nothing of the job runs outside.
  Result<void> join() const;

  // Whether the calling process is in the group.
  bool holds_caller() const;

  std::vector<pid_t> members() const;

  // Removes the folder and groups that the job made in it. Processes that are left keep it: they
  // are returned, and a later remove_stale takes it away.
  Result<std::vector<pid_t>> remove();

 private:
  std::string path_;
  Fd procs_;
  pid_t maker_ = 0;
};

// Removes empty corral-<pidns>-<pid>-<starttime> groups below `parent` whose process is gone.
// Leaves those of other pid namespaces alone: whether their process lives cannot be told from here.
// Returns how many.
unsigned remove_stale_cgroups(const std::string& parent);

}  // namespace corral::isolate

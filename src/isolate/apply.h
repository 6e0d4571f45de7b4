// SPDX-License-Identifier: Apache-2.0
// Puts a plan into effect. The only file that knows the order: prepare in the parent, enter in the
// child between fork and exec, release in the parent when the job has ended.
#pragma once

#include <linux/filter.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "isolate/cgroup_folder.h"
#include "isolate/plan.h"
#include "isolate/settle.h"

namespace corral::isolate {

// Everything that can be made before the fork. Destroying it removes the job's cgroup if that is
// empty by then, but only in the process that prepared it: a child that dies between fork and exec
// leaves the parent's group alone.
struct Prepared {
  Plan plan;
  Settled settled{};  // before the groups: they go first
  CgroupFolder cgroup2{};
  CgroupFolder cgroup1{};
  // Of limits whose group is none of the two above: v1 has a hierarchy for each controller.
  std::vector<CgroupFolder> limit_groups{};
  Fd landlock_ruleset{};
  std::vector<sock_filter> filter{};
};

// Parent, before fork: makes the cgroup and loads its program, builds the Landlock rule set and the
// filter. An error leaves nothing behind. Groups of runs that died are removed on the way.
Result<Prepared> prepare(const Plan& plan);

// fork(2) for the process that will enter(): 0 in the child, its pid in the parent. With cgroup v2
// the child starts in the group, which saves 10 to 20 ms; enter() joins it where that failed.
Result<pid_t> fork_confined(const Prepared& prepared);

// Child, after fork (fork_confined or any other) and before exec: joins the cgroup, closes
// inherited descriptors, restricts itself and tests that every refused node is refused and every
// allowed one is not. On an error the caller must not exec. The environment of the plan is the
// caller's to set.
Result<void> enter(const Prepared& prepared);

// Parent, after the job and before release(): where the job ran into its limits, a sentence each.
std::vector<std::string> limit_events(const Prepared& prepared);

// Parent, after the job: removes the cgroups. Returns the processes still in it, in which case the
// group stays for the next start to remove.
Result<std::vector<pid_t>> release(Prepared& prepared);

}  // namespace corral::isolate

// SPDX-License-Identifier: Apache-2.0
// The kernel side of limits: the files of a job's group, affinity and memory policy, and the proof
// that they are in effect.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "isolate/cgroup_folder.h"
#include "isolate/limits.h"

namespace corral::isolate {

// Writes a limit that a cgroup holds into the files of the job's `group`. For v1 cpuset, which
// takes no process before it has both CPUs and memory nodes, what is not set is taken from the
// group above. A memory limit counts swap in.
Result<void> write_limit(const std::string& group, const Limit& limit);

// Child: joins `groups`, sets affinity and memory policy, and reads back everything. The affinity
// that we had goes on to hold: entering a cpuset would take it off on older kernels.
Result<void> enter_limits(const std::vector<Limit>& limits,
                          const std::vector<const CgroupFolder*>& groups);

// Whether the job ran into its limits, one sentence each: by the counters of its group.
std::vector<std::string> limit_events(const std::string& group, const Limit& limit);

// CPUs that the calling thread may run on.
Result<std::vector<unsigned>> affinity();

}  // namespace corral::isolate

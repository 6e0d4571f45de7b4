// SPDX-License-Identifier: Apache-2.0
// Which descriptors the job inherits: those that Corral was given, and none that libraries opened
// in between.
#pragma once

#include <vector>

namespace corral::launch {

// The descriptors open now that exec passes on, ascending. Those that this process opened itself
// for its own use are not among them.
std::vector<int> open_descriptors();

// Marks every other descriptor close-on-exec: NVML, for one, opens GPU nodes without that flag.
void close_on_exec_except(const std::vector<int>& kept);

}  // namespace corral::launch

// SPDX-License-Identifier: Apache-2.0
// What an administrator would type for the effect of a plan.
#pragma once

#include <string>
#include <vector>

#include "isolate/plan.h"

namespace corral::isolate {

// Shell commands in three labelled blocks, for a root shell: cgroup v1, cgroup v2 and systemd-run.
// What one of them cannot do is said in its comments. Pure.
std::string commands_by_hand(const Plan& plan, const std::vector<std::string>& command);

}  // namespace corral::isolate

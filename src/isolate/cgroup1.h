// SPDX-License-Identifier: Apache-2.0
// cgroup v1: the devices controller refuses nodes by number.
#pragma once

#include <span>
#include <string>

#include "base/error.h"
#include "isolate/facts.h"

namespace corral::isolate {

// Writes each node to devices.deny of the group, all accesses. Nodes that are no devices are passed
// over. Needs CAP_SYS_ADMIN.
Result<void> deny_devices(const std::string& group, std::span<const Node> nodes);

// The line devices.deny takes: "c 195:0 rwm"; empty for a node that is no device.
std::string deny_line(const Node& node);

}  // namespace corral::isolate

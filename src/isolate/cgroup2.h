// SPDX-License-Identifier: Apache-2.0
// cgroup v2: a BPF device program that refuses nodes by number, whatever their name.
#pragma once

#include <linux/bpf.h>

#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "isolate/facts.h"

namespace corral::isolate {

// The program: 0 (refuse) for the type and number of each node, in every access including mknod,
// and 1 (allow) for all else. Nodes that are no devices are passed over.
std::vector<bpf_insn> device_program(std::span<const Node> nodes);

// Programs attached to each group from `mount_point` down to `folder` (both included), outermost
// first; groups without any are left out. An error says why device programs are not possible here.
Result<std::vector<DevicePrograms>> query_device_programs(const std::string& mount_point,
                                                          const std::string& folder);

// Loads the program and attaches it to the group with BPF_F_ALLOW_MULTI, so that programs above go
// on to hold. That they do is checked: where ours displaced one, it is taken off again and the
// error says so.
Result<void> attach_device_program(const std::string& group, std::span<const Node> nodes);

}  // namespace corral::isolate

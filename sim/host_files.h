// SPDX-License-Identifier: Apache-2.0
// /proc and /sys of a simulated machine.
#pragma once

#include <string>

#include "base/error.h"
#include "nodes.h"
#include "profile.h"

namespace corral::sim {

// Writes <folder>/proc/driver/nvidia, <folder>/proc/devices and <folder>/sys/bus/pci/devices, in
// the form that driver 580 and the kernel give them.
Result<void> write_host_files(const std::string& folder, const Profile& profile,
                              const NodeNumbers& numbers);

}  // namespace corral::sim

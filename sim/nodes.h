// SPDX-License-Identifier: Apache-2.0
// The device nodes of a simulated machine.
#pragma once

#include <string>

#include "base/error.h"
#include "profile.h"

namespace corral::sim {

// What was made, for /proc/devices and for people.
struct NodeNumbers {
  bool devices = false;  // character devices; else plain files
  unsigned uvm_major = 0;
  unsigned caps_major = 0;
  std::string about;  // one sentence
};

// Whether a device node of the GPUs' major number, made below `place`, can be opened: no driver
// holds the number here, the mount allows devices, and no device rule refuses it.
bool device_nodes_work(const std::string& place);

// Makes <folder>/dev. As root these are character devices with the real numbers (195:N) and no
// driver behind them: a permitted open ends in ENXIO and a refused one in EPERM or EACCES, so real
// cgroup device rules act on them. Where that cannot be, plain files.
Result<NodeNumbers> make_nodes(const std::string& folder, const Profile& profile);

}  // namespace corral::sim

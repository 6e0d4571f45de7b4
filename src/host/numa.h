// SPDX-License-Identifier: Apache-2.0
// The NUMA nodes of a machine, from /sys/devices/system/node.
#pragma once

#include <vector>

#include "base/error.h"
#include "host/root.h"

namespace corral::host {

struct NumaNode {
  unsigned number = 0;
  std::vector<unsigned> cpus;  // ascending; empty for a node that has memory only
  bool has_memory = false;

  bool operator==(const NumaNode&) const = default;
};

// The nodes that are online, ascending. Empty where the kernel was built without NUMA.
Result<std::vector<NumaNode>> numa_nodes(const Root& root);

}  // namespace corral::host

// SPDX-License-Identifier: Apache-2.0
// What /sys says of a PCI function.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "host/pci_address.h"
#include "host/root.h"

namespace corral::host {

struct PciLink {
  std::string speed;      // current, as the kernel writes it: "32.0 GT/s PCIe"
  std::string max_speed;  // of the device itself, not of the slot
  unsigned width = 0;     // lanes
  unsigned max_width = 0;

  bool operator==(const PciLink&) const = default;
};

// "/sys/bus/pci/devices/0000:00:07.0" under the root.
std::string pci_folder(const Root& root, const PciAddress& address);

// nullopt: the firmware names none (the kernel writes -1).
Result<std::optional<int>> numa_node(const Root& root, const PciAddress& address);

// Nodes of the function in /dev/dri, sorted: "/dev/dri/card1", "/dev/dri/renderD128". Empty where
// no DRM driver is bound.
Result<std::vector<std::string>> drm_nodes(const Root& root, const PciAddress& address);

Result<PciLink> pci_link(const Root& root, const PciAddress& address);

}  // namespace corral::host

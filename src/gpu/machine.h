// SPDX-License-Identifier: Apache-2.0
// The machine that a command works on: the real one, or the simulated one of CORRAL_SIM.
#pragma once

#include <memory>

#include "gpu/device.h"
#include "gpu/nvml.h"
#include "host/root.h"

namespace corral::gpu {

struct Machine {
  // Where the GPUs' nodes, /proc/driver/nvidia and /sys are read. Processes are always real ones:
  // they are read from "/".
  host::Root hardware;
  bool simulated = false;
};

// The folder that the variable CORRAL_SIM names, "/" without it.
Machine find_machine();

struct OpenedMachine {
  Machine machine;
  std::shared_ptr<const Nvml> nvml;  // null: not there, `inventory.notes` says why
  Inventory inventory;               // with `accessible` probed
};

// Loads NVML (11 to 13 ms on a machine with GPUs) and reads the inventory.
OpenedMachine open_machine();

}  // namespace corral::gpu

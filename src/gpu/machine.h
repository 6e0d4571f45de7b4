// SPDX-License-Identifier: Apache-2.0
// The machine that a command works on: the real one, or the simulated one of CORRAL_SIM.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

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
  // Null: NVML could not be opened, `inventory.notes` says why.
  NvmlOpener nvml;
  bool nvml_open = false;  // `nvml` gives it at once
  Inventory inventory;     // with `accessible` probed
};

// Reads the inventory, from /proc and /sys where they tell all that a selection needs. NVML is
// opened only where they do not: opening it and a handle for each GPU takes 29 ms of the driver's
// time on two H200, which whoever wants readings can spend while the job runs. The numbers are
// nvidia-smi's either way.
OpenedMachine open_machine();

// A GPU's memory; read through NVML where the inventory does not have it. nullopt: not known.
std::optional<std::uint64_t> memory_total_bytes(const OpenedMachine& machine, const Gpu& gpu);

}  // namespace corral::gpu

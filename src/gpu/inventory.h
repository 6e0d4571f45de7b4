// SPDX-License-Identifier: Apache-2.0
// Which GPUs a machine has: NVML's list, completed from /proc and /sys; without NVML, /proc alone.
#pragma once

#include "gpu/device.h"
#include "gpu/nvml.h"
#include "host/root.h"

namespace corral::gpu {

// Never fails: what is missing is unknown in the result and named in its notes. A GPU that NVML
// counts but gives no handle for keeps its number and says why. `nvml` may be null; getting its
// handles wakes sleeping GPUs. Node paths are under `hardware`.
Inventory read_inventory(const host::Root& hardware, const Nvml* nvml);

// Sets `accessible` of every GPU whose node is known by opening the node as a CUDA process would.
void probe_access(Inventory& inventory);

}  // namespace corral::gpu

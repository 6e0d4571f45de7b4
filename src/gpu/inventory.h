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

// Sets `accessible` of every GPU whose node is known: whether a process started as this one may
// open the node. The node itself is opened only where access(2) cannot tell, because an open can
// start a sleeping GPU.
void probe_access(Inventory& inventory);

// Numbers GPUs of Source::proc as NVML does for this process: those that are known to be closed to
// it go to `hidden`, and the others close up (measured on driver 580.159 with a node refused by a
// cgroup and by Landlock).
void hide_closed(Inventory& inventory);

}  // namespace corral::gpu

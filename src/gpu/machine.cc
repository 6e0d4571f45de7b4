// SPDX-License-Identifier: Apache-2.0
// Finding and opening the machine.
#include "gpu/machine.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/signals.h"
#include "gpu/inventory.h"

namespace corral::gpu {
namespace {

// Whether a selection can be made, numbered and confined without asking NVML.
bool needs_no_nvml(const Inventory& inventory) {
  const auto is_whole = [](const Gpu& gpu) {
    // NVML makes nodes that are not there yet. The UUIDs of MIG instances only it knows.
    return !gpu.uuid.empty() && !gpu.name.empty() && gpu.mig.empty() && !gpu.node.empty() &&
           ::access(gpu.node.c_str(), F_OK) == 0;
  };
  // Without notes: nothing was left out or unreadable.
  return inventory.source == Inventory::Source::proc && !inventory.gpus.empty() &&
         inventory.notes.empty() && std::ranges::all_of(inventory.gpus, is_whole);
}

}  // namespace

Machine find_machine() {
  const char* folder = std::getenv("CORRAL_SIM");
  if (folder == nullptr || *folder == '\0') return {};
  std::string prefix = folder;
  while (prefix.ends_with('/')) prefix.pop_back();
  return {host::Root(prefix), true};
}

OpenedMachine open_machine() {
  OpenedMachine out;
  out.machine = find_machine();
  out.inventory = read_inventory(out.machine.hardware, nullptr);
  if (needs_no_nvml(out.inventory)) {
    probe_access(out.inventory);
    hide_closed(out.inventory);
    out.nvml = [] { return Nvml::open(); };
  } else {
    const SignalsBlocked blocked;
    const auto nvml = Nvml::open();
    out.inventory = read_inventory(out.machine.hardware, nvml ? nvml->get() : nullptr);
    probe_access(out.inventory);
    out.nvml_open = nvml.has_value();
    if (nvml)
      out.nvml = [nvml] { return nvml; };
    else
      out.inventory.notes.push_back(nvml.error().what);
  }
  out.inventory.simulated = out.machine.simulated;
  return out;
}

std::optional<std::uint64_t> memory_total_bytes(const OpenedMachine& machine, const Gpu& gpu) {
  if (gpu.memory_total_bytes || !machine.nvml) return gpu.memory_total_bytes;
  const SignalsBlocked blocked;  // also in threads that it starts
  const auto nvml = machine.nvml();
  if (!nvml) return std::nullopt;
  const auto device = (*nvml)->device(gpu.pci);
  if (!device) return std::nullopt;
  const auto memory = (*nvml)->memory(*device);
  if (!memory) return std::nullopt;
  return memory->total_bytes;
}

}  // namespace corral::gpu

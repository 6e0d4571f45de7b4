// SPDX-License-Identifier: Apache-2.0
// Finding and opening the machine.
#include "gpu/machine.h"

#include <cstdlib>
#include <string>

#include "base/signals.h"
#include "gpu/inventory.h"

namespace corral::gpu {

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
  const SignalsBlocked blocked;
  auto nvml = Nvml::open();
  if (nvml) out.nvml = *nvml;
  out.inventory = read_inventory(out.machine.hardware, out.nvml.get());
  if (!nvml) out.inventory.notes.push_back(nvml.error().what);
  out.inventory.simulated = out.machine.simulated;
  probe_access(out.inventory);
  return out;
}

}  // namespace corral::gpu

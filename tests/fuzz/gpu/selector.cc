// SPDX-License-Identifier: Apache-2.0
// Any text as a selection: no crash, and what is selected exists, once, in order.
#include "gpu/selector.h"

#include <cstdlib>

namespace {

using namespace corral::gpu;

Inventory machine() {
  Inventory out;
  for (unsigned i = 0; i < 4; ++i) {
    Gpu gpu;
    gpu.index = i;
    gpu.uuid = i == 3 ? "" : "GPU-2b68571" + std::to_string(i) + "-e7c6-a661-f4b0-04f71feb86c0";
    gpu.pci.device = static_cast<std::uint8_t>(i + 6);
    gpu.node = "/dev/nvidia" + std::to_string(i);
    gpu.accessible = i != 2;
    if (i == 1) gpu.mig = {{"MIG-6f1a", 1, 0, "", {}, {}}, {"MIG-6f2b", 2, 0, "", {}, {}}};
    out.gpus.push_back(gpu);
  }
  return out;
}

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Inventory inventory = machine();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto selection = select(text, inventory);
  if (!selection) {
    require(!selection.error().what.empty());
    for (const char c : selection.error().what) require(c >= ' ' || c < 0);
    return 0;
  }
  for (std::size_t i = 0; i < selection->gpus.size(); ++i) {
    require(selection->gpus[i] < inventory.gpus.size());
    require(inventory.gpus[selection->gpus[i]].accessible == true);
    require(i == 0 || selection->gpus[i - 1] < selection->gpus[i]);
  }
  for (const MigRef& ref : selection->mig)
    require(ref.instance < inventory.gpus.at(ref.gpu).mig.size());
  if (const auto value = visible_devices(*selection, inventory)) require(!value->empty());
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// The SEL of --gpus and --expect: which GPUs of a machine a text names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "gpu/device.h"

namespace corral::gpu {

// A MIG instance: inventory.gpus[gpu].mig[instance].
struct MigRef {
  unsigned gpu = 0;
  unsigned instance = 0;

  auto operator<=>(const MigRef&) const = default;
};

struct Selection {
  // Indices in the inventory, ascending. A GPU of which only instances were named is in it too.
  std::vector<unsigned> gpus;
  // The instances named, ascending. A GPU in `gpus` without one here is selected whole.
  std::vector<MigRef> mig;

  bool empty() const { return gpus.empty(); }  // "none"
  bool operator==(const Selection&) const = default;
};

// The forms, of which a list joins those of the first four rows with commas:
//   1, 2-3                     nvidia-smi's numbers
//   GPU-2b68                   the beginning of a UUID that only one GPU has, in any case
//   MIG-6f1a                   the same for a MIG instance: its GPU with only that instance
//   0000:00:07.0               a PCI address; the domain may have 8 digits or be left out
//   all                        every GPU that this process may open
//   none                       no GPU; holds on a machine without any
// A GPU that is known to be closed to this process (`accessible` false) is refused.
// Errors name the text, what is wrong with it and what the machine has.
Result<Selection> select(std::string_view text, const Inventory& inventory);

// The value of CUDA_VISIBLE_DEVICES for the selection: UUIDs, because numbers change when nodes are
// hidden. For no GPU it is "NoDevFiles": driver 580.159 then has no device (cuInit gives error
// 100), schedulers write the same, and unlike an empty value no tool takes it for "not set". The
// error is of a selected GPU or instance whose UUID is unknown.
Result<std::string> visible_devices(const Selection& selection, const Inventory& inventory);

// "GPU 0 and 1", "no GPU": what the machine has, for sentences.
std::string describe_gpus(const Inventory& inventory);

}  // namespace corral::gpu

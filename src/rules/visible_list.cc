// SPDX-License-Identifier: Apache-2.0
#include "rules/visible_list.h"

#include "base/text.h"

namespace corral::rules {
namespace {

using snapshot::Init;

// CUDA's number of the context's device among all GPUs. The process's own number is that only when
// the process saw them all; else nvidia-smi's is, when CUDA counts in the same order.
std::optional<int> number_among_all(const Stray& stray) {
  const Init* init = stray.init();
  if (init == nullptr) return std::nullopt;
  if (!init->visible_devices) return stray.context().ordinal;
  if (init->device_order == "PCI_BUS_ID" && stray.context().gpu)
    return static_cast<int>(*stray.context().gpu);
  return std::nullopt;
}

}  // namespace

std::optional<bool> would_show(const Stray& stray, const std::string& value) {
  std::optional<bool> by_uuid;  // as the first entry is
  for (const std::string_view field : split(value, ',')) {
    const std::string_view entry = trim(field);
    const bool uuid = entry.starts_with("GPU-") || entry.starts_with("MIG-");
    if (by_uuid.value_or(uuid) != uuid) return false;
    by_uuid = uuid;
    if (uuid) {
      if (lower(stray.context().gpu_uuid).starts_with(lower(entry))) return true;
      continue;
    }
    if (entry.empty()) return false;
    const auto number = parse_number<int>(entry);
    if (!number) return std::nullopt;  // "0x1" is 0 for the driver: no matter for a rule
    if (*number < 0 || static_cast<std::size_t>(*number) >= stray.run().gpus.size()) return false;
    const auto mine = number_among_all(stray);
    if (!mine) return std::nullopt;
    if (*number == *mine) return true;
  }
  return false;
}

}  // namespace corral::rules

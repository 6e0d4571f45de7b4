// SPDX-License-Identifier: Apache-2.0
// torch.load that restores tensors where they were saved from.
#include <fmt/format.h>

#include "rules/current_device.h"

namespace corral::rules {
namespace {

Outcome check(const snapshot::Run& run);

const Registered<Rule> rule{Rule{
    .id = "stray.load-without-map-location",
    .severity = Severity::error,
    .summary = "torch.load() without map_location",
    .cause = "torch.load() without map_location puts each tensor back on the device that it was "
             "saved from, whatever device the job uses now.",
    .verify = "Print the device of a loaded tensor.",
    .fix = "torch.load(path, map_location=\"cpu\"), and move what is needed.",
    .precedence = Precedence::call,
    .check = check}};

constexpr std::string_view kFile = "torch/serialization.py";

std::optional<Explanation> explain(const Stray& stray) {
  if (stray.find(kFile, {"default_restore_location", "_cuda_deserialize"}) == nullptr ||
      stray.find(kFile, {"load", "_load", "_legacy_load"}) == nullptr)
    return std::nullopt;
  // PyTorch wraps a map_location in a function of this name.
  if (stray.find(kFile, {"restore_location"}) != nullptr) return std::nullopt;
  // Unpickling a tensor loads its storage from bytes: that is no call of the user's.
  if (stray.find("torch/storage.py", {"_load_from_bytes"}) != nullptr) return std::nullopt;
  if (stray.statement() != nullptr && stray.statement()->has_name("map_location"))
    return std::nullopt;
  Explanation out;
  if (stray.context().ordinal)
    out.evidence.push_back(fmt::format("the file says that its tensors were saved from cuda:{}",
                                       *stray.context().ordinal));
  const auto ordinal = meant_device(stray).ordinal;
  if (ordinal)
    out.fix = fmt::format(
        "torch.load(path, map_location=\"cpu\") and move what is needed, or "
        "map_location=\"cuda:{}\".",
        *ordinal);
  return out;
}

Outcome check(const snapshot::Run& run) { return explain_strays(run, rule.value(), explain); }

}  // namespace
}  // namespace corral::rules

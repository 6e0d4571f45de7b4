// SPDX-License-Identifier: Apache-2.0
// torch.nn.DataParallel, which takes every GPU that it sees.
#include <fmt/format.h>

#include "rules/context_words.h"
#include "rules/current_device.h"

namespace corral::rules {
namespace {

Outcome check(const snapshot::Run& run);

const Registered<Rule> rule{Rule{
    .id = "stray.data-parallel",
    .severity = Severity::error,
    .summary = "DataParallel over every visible GPU",
    .cause = "torch.nn.DataParallel copies the model to all of its devices and scatters each batch "
             "over them; without device_ids that is every GPU that the process sees. Some trainers "
             "wrap the model in it unasked when they see more than one.",
    .verify = "Print the device_ids of the DataParallel module.",
    .fix = "Show the job only the GPUs that it may use (corral run --gpus), or "
           "DataParallel(model, device_ids=[…]).",
    .precedence = Precedence::call,
    .check = check}};

std::optional<Explanation> explain(const Stray& stray) {
  if (stray.find("torch/nn/parallel/data_parallel.py",
                 {"forward", "replicate", "scatter", "parallel_apply", "gather",
                  "data_parallel"}) == nullptr &&
      (stray.own() != nullptr ||
       stray.find("torch/nn/parallel/parallel_apply.py", {"_worker"}) == nullptr))
    return std::nullopt;
  Explanation out;
  const auto ordinal = meant_device(stray).ordinal;
  if (ordinal)
    out.fix = fmt::format(
        "Show the job only the GPUs that it may use ({}), or DataParallel(model, "
        "device_ids=[{}]); with a single GPU it is not needed at all.",
        how_to_confine(stray.run()), *ordinal);
  return out;
}

Outcome check(const snapshot::Run& run) { return explain_strays(run, rule.value(), explain); }

}  // namespace
}  // namespace corral::rules

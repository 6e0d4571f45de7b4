// SPDX-License-Identifier: Apache-2.0
// Asking a device for its free memory, which makes a context there.
#include <fmt/format.h>

#include <set>

#include "base/text.h"
#include "rules/current_device.h"

namespace corral::rules {
namespace {

Outcome check(const snapshot::Run& run);

const Registered<Rule> rule{Rule{
    .id = "stray.device-query",
    .severity = Severity::error,
    .summary = "a question about a device's free memory",
    .cause = "CUDA answers how much memory of a device is free only through a context on that "
             "device, and the context stays until the process ends.",
    .verify = "nvidia-smi lists the process on every GPU that it asked about.",
    .fix = "Ask NVML (pynvml.nvmlDeviceGetMemoryInfo) or nvidia-smi, which make no context, or "
           "choose the GPU before Python starts.",
    .precedence = Precedence::call,
    .check = check}};

bool asks_torch(const Stray& stray) {
  const auto frames = stray.library();
  for (std::size_t i = 0; i < frames.size() && i < 2; ++i)
    if (stray.is(frames[i], "torch/cuda/memory.py", {"mem_get_info"})) return true;
  return false;
}

// CuPy's call is native: the user's line is the innermost Python frame, and its text says which.
bool asks_cupy(const Stray& stray) {
  return stray.own() != nullptr && stray.library().empty() && stray.statement() != nullptr &&
         stray.in_module("/cupy_backends/cuda/api/runtime.") &&
         (stray.statement()->calls_any({"memGetInfo"}) || stray.statement()->has_name("mem_info"));
}

std::optional<Explanation> explain(const Stray& stray) {
  if (!asks_torch(stray) && !asks_cupy(stray)) return std::nullopt;
  Explanation out;
  std::set<unsigned> gpus;
  if (stray.own() != nullptr)
    for (const snapshot::Context& context : stray.run().contexts)
      if (context.pid == stray.context().pid && context.gpu && context.culprit == *stray.own())
        gpus.insert(*context.gpu);
  if (gpus.size() > 1) {
    std::vector<std::string> numbers;
    for (const unsigned gpu : gpus) numbers.push_back(std::to_string(gpu));
    out.evidence.push_back(fmt::format("the same line made contexts on GPU {}: a loop over devices",
                                       join_and(numbers)));
  }
  return out;
}

Outcome check(const snapshot::Run& run) { return explain_strays(run, rule.value(), explain); }

}  // namespace
}  // namespace corral::rules

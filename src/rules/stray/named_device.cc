// SPDX-License-Identifier: Apache-2.0
// A device that the job names itself, by its number.
#include <fmt/format.h>

#include "rules/current_device.h"

namespace corral::rules {
namespace {

Outcome check(const snapshot::Run& run);

const Registered<Rule> rule{
    Rule{.id = "stray.named-device",
         .severity = Severity::error,
         .summary = "the job names this device by its number",
         .cause = "The job itself chose this device, by its number.",
         .verify = "Read that line.",
         .fix = "Write the number of the device that was meant, or take it from a setting.",
         .precedence = Precedence::thread,
         .check = check}};

// torch.cuda.set_device(0), or the head of `with torch.cuda.device(0)`.
const char* chosen_by(const Stray& stray) {
  if (stray.library().empty()) return nullptr;
  const snapshot::PythonFrame& innermost = stray.library().front();
  if (stray.is(innermost, "torch/cuda/__init__.py", {"set_device"})) return "set_device()";
  if (stray.library().size() == 1 && stray.is(innermost, "torch/cuda/__init__.py", {"__enter__"}))
    return "device()";
  return nullptr;
}

std::optional<Explanation> explain(const Stray& stray) {
  if (stray.own() == nullptr) return std::nullopt;
  Explanation out;
  if (const char* function = chosen_by(stray)) {
    out.evidence.push_back(fmt::format("chosen with torch.cuda.{}", function));
  } else {
    const bool cupy = stray.library().empty() && stray.in_module("/cupy/cuda/device.");
    if (!allocates(stray) && !cupy) return std::nullopt;
    const DeviceText text = device_text(stray);
    if (text.says == DeviceText::Says::computed)
      out.evidence.emplace_back("the program works the number out");
    else if (text.says != DeviceText::Says::number)
      return std::nullopt;
    if (text.line != stray.statement()->first_line)
      out.evidence.push_back(
          fmt::format("the device is from {}",
                      place({.file = stray.own()->file, .line = text.line, .function = {}})));
  }
  const auto ordinal = meant_device(stray).ordinal;
  if (ordinal)
    out.fix = fmt::format("Write {} in its place (\"cuda:{}\"), or take it from a setting.",
                          *ordinal, *ordinal);
  return out;
}

Outcome check(const snapshot::Run& run) { return explain_strays(run, rule.value(), explain); }

}  // namespace
}  // namespace corral::rules

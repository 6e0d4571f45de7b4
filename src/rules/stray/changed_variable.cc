// SPDX-License-Identifier: Apache-2.0
// A process whose CUDA_VISIBLE_DEVICES at cuInit was another than it was given. One that had none
// is of stray.lost-variable.
#include <fmt/format.h>

#include "base/text.h"
#include "rules/stray_context.h"

namespace corral::rules {
namespace {

Outcome check(const snapshot::Run& run);

const Registered<Rule> rule{Rule{
    .id = "stray.changed-variable",
    .severity = Severity::error,
    .summary = "the job replaced CUDA_VISIBLE_DEVICES before CUDA started",
    .cause = "The job itself, or a script that it runs, set CUDA_VISIBLE_DEVICES to something else "
             "than it was "
             "given. The driver reads the variable once, in cuInit, and obeyed the job's value.",
    .verify =
        "grep -rn CUDA_VISIBLE_DEVICES in the job's scripts, shell profiles and launch files.",
    .fix = "Remove the line that sets CUDA_VISIBLE_DEVICES, or run with a method that the kernel "
           "enforces "
           "(--enforce auto), which the variable cannot undo.",
    .precedence = Precedence::value,
    .check = check}};

std::optional<Explanation> explain(const Stray& stray) {
  const auto& given = stray.run().confinement.visible_devices;
  const snapshot::Init* init = stray.init();
  if (!given || init == nullptr || !init->visible_devices || *init->visible_devices == *given)
    return std::nullopt;
  Explanation out;
  out.evidence = {
      fmt::format("given CUDA_VISIBLE_DEVICES={}", *given),
      fmt::format("at cuInit CUDA_VISIBLE_DEVICES={}", printable(*init->visible_devices))};
  return out;
}

Outcome check(const snapshot::Run& run) {
  return explain_strays(run, rule.value(), explain, Found::taken);
}

}  // namespace
}  // namespace corral::rules

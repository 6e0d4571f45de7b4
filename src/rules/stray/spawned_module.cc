// SPDX-License-Identifier: Apache-2.0
// The main script's top level, run again in a child that multiprocessing has spawned.
#include "rules/current_device.h"

namespace corral::rules {
namespace {

Outcome check(const snapshot::Run& run);

const Registered<Rule> rule{Rule{
    .id = "stray.spawned-module",
    .severity = Severity::error,
    .summary = "a top-level line of the script, run again in a spawned child",
    .cause = "multiprocessing with \"spawn\" runs the main script again in every child, before the "
             "child's own function. Its top-level lines use CUDA there when no device has been "
             "chosen yet.",
    .verify = "Print multiprocessing.current_process().name above that line: it appears once for "
              "each child.",
    .fix = "Move the line below if __name__ == \"__main__\":, or into the function that needs it.",
    .precedence = Precedence::module,
    .check = check}};

std::optional<Explanation> explain(const Stray& stray) {
  if (stray.own() == nullptr ||
      stray.find_standard("multiprocessing/spawn.py",
                          {"_fixup_main_from_path", "_fixup_main_from_name"}) == nullptr)
    return std::nullopt;
  return Explanation{};
}

Outcome check(const snapshot::Run& run) { return explain_strays(run, rule.value(), explain); }

}  // namespace
}  // namespace corral::rules

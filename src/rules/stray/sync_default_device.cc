// SPDX-License-Identifier: Apache-2.0
// torch.cuda.synchronize() that was given no device.
#include <fmt/format.h>

#include "rules/current_device.h"

namespace corral::rules {
namespace {

Outcome check(const snapshot::Run& run);

const Registered<Rule> rule{Rule{
    .id = "stray.sync-default-device",
    .severity = Severity::error,
    .summary = "torch.cuda.synchronize() without a device",
    .cause = "torch.cuda.synchronize() waits for the current device unless it is given one. That "
             "is cuda:0 until torch.cuda.set_device() is called, and waiting makes its context. "
             "Work on another GPU was not waited for: timings around the call are wrong too.",
    .verify = "Print torch.cuda.current_device() above that line.",
    .fix = "Give the device: torch.cuda.synchronize(device); or call torch.cuda.set_device() once "
           "at the start.",
    .precedence = Precedence::call,
    .check = check}};

std::optional<Explanation> explain(const Stray& stray) {
  if (!synchronizes_current_device(stray)) return std::nullopt;
  Explanation out;
  const std::string n = meant_number(stray);
  out.fix = fmt::format(
      "torch.cuda.synchronize(\"cuda:{}\"), or torch.cuda.set_device({}) once at the start.", n, n);
  return out;
}

Outcome check(const snapshot::Run& run) { return explain_strays(run, rule.value(), explain); }

}  // namespace
}  // namespace corral::rules

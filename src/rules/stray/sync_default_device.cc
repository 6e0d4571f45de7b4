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

// Where the user's line does not show the call, both ways to get there are told.
constexpr std::string_view kEither =
    "torch.cuda.synchronize() waited for device 0, and waiting makes its context. Either it was "
    "given no device, and then it waits for the current one, which is cuda:0 until "
    "torch.cuda.set_device() is called; or what it was given says 0.";

std::optional<Explanation> explain(const Stray& stray) {
  const ByDefault by_default = synchronizes_current_device(stray);
  if (by_default == ByDefault::no) return std::nullopt;
  Explanation out;
  if (by_default == ByDefault::unknown) out.cause = kEither;
  const std::string n = meant_number(stray);
  out.fix = fmt::format(
      "torch.cuda.synchronize(\"cuda:{}\"), or torch.cuda.set_device({}) once at the start.", n, n);
  return out;
}

Outcome check(const snapshot::Run& run) { return explain_strays(run, rule.value(), explain); }

}  // namespace
}  // namespace corral::rules

// SPDX-License-Identifier: Apache-2.0
// A stream or an event of PyTorch that was given no device.
#include <fmt/format.h>

#include "rules/current_device.h"

namespace corral::rules {
namespace {

Outcome check(const snapshot::Run& run);

const Registered<Rule> rule{Rule{
    .id = "stray.stream-event",
    .severity = Severity::error,
    .summary = "a stream or an event without a device",
    .cause = "A stream or an event of PyTorch without a device belongs to the current device, "
             "which is cuda:0 until torch.cuda.set_device() is called. An event is made on its "
             "first record(), on the current stream of the current device.",
    .verify = "Print torch.cuda.current_device() above that line.",
    .fix = "Give the device or a stream of it, or call torch.cuda.set_device() first.",
    .precedence = Precedence::call,
    .check = check}};

// Where the user's line does not show the call, both ways to get there are told.
constexpr std::string_view kEither =
    "A stream or an event of PyTorch was made on device 0. Either it was given no device, and then "
    "it belongs to the current one, which is cuda:0 until torch.cuda.set_device() is called; or "
    "what it was given says 0.";

std::optional<Explanation> explain(const Stray& stray) {
  const ByDefault by_default = makes_stream_or_event(stray);
  if (by_default == ByDefault::no) return std::nullopt;
  Explanation out;
  if (by_default == ByDefault::unknown) out.cause = kEither;
  const std::string n = meant_number(stray);
  out.fix = fmt::format(
      "torch.cuda.Stream(device=\"cuda:{}\"), or "
      "event.record(torch.cuda.current_stream(\"cuda:{}\")), or "
      "torch.cuda.set_device({}) first.",
      n, n, n);
  return out;
}

Outcome check(const snapshot::Run& run) { return explain_strays(run, rule.value(), explain); }

}  // namespace
}  // namespace corral::rules

// SPDX-License-Identifier: Apache-2.0
// A thread that began on device 0, whatever device another thread had chosen.
#include <fmt/format.h>

#include "base/text.h"
#include "rules/current_device.h"

namespace corral::rules {
namespace {

using snapshot::Context;

Outcome check(const snapshot::Run& run);

const Registered<Rule> rule{Rule{
    .id = "stray.thread-device-zero",
    .severity = Severity::error,
    .summary = "a thread that began on device 0",
    .cause = "The current device belongs to the thread. Every new thread begins on device 0, "
             "whatever device another thread has chosen before.",
    .verify = "Print torch.cuda.current_device() in that function, and threading.current_thread().",
    .fix = "Choose the device at the head of the thread's function, or name it in the call.",
    .precedence = Precedence::thread,
    .check = check}};

// An earlier context of another thread on another device: somebody had chosen.
const Context* chosen_elsewhere(const Stray& stray) {
  for (const Context* other : stray.earlier())
    if (other->tid != 0 && other->tid != stray.context().tid && other->ordinal.value_or(0) != 0 &&
        !other->found)
      return other;
  return nullptr;
}

bool chose_its_device(const Context& context) {
  for (const snapshot::PythonFrame& frame : context.stack.python)
    if (frame.function == "set_device" && frame.file.ends_with("-packages/torch/cuda/__init__.py"))
      return true;
  return false;
}

std::optional<Explanation> explain(const Stray& stray) {
  if (stray.on_main_thread() || stray.own() == nullptr || stray.context().ordinal != 0 ||
      stray.find_standard("threading.py", {"_bootstrap", "_bootstrap_inner"}) == nullptr)
    return std::nullopt;
  const ByDefault wait = synchronizes_current_device(stray);
  const ByDefault stream = makes_stream_or_event(stray);
  if (!allocates(stray) && wait == ByDefault::no && stream == ByDefault::no) return std::nullopt;
  const DeviceText text = device_text(stray);
  if (text.says == DeviceText::Says::number || text.says == DeviceText::Says::computed ||
      had_chosen(stray))
    return std::nullopt;
  const Context* other = chosen_elsewhere(stray);
  if (other == nullptr) return std::nullopt;
  Explanation out;
  out.evidence.push_back(fmt::format("thread {}; {} had used device {} before{}",
                                     printable(stray.context().thread), printable(other->thread),
                                     *other->ordinal,
                                     other->culprit ? ", at " + place(*other->culprit) : ""));
  if ((allocates(stray) && text.says == DeviceText::Says::unknown) || wait == ByDefault::unknown ||
      stream == ByDefault::unknown)
    out.evidence.emplace_back(
        "whether the call names device 0 itself cannot be read from the line");
  // Where a thread chose with set_device(), that nobody did so in this one is the whole story.
  if (chose_its_device(*other)) out.precedence = Precedence::module;
  if (stray.in_module("/torch/lib/")) {
    const std::string n = meant_number(stray);
    out.fix = fmt::format(
        "torch.cuda.set_device({}) at the head of the thread's function "
        "(ThreadPoolExecutor(initializer=torch.cuda.set_device, initargs=({},))), or name the "
        "device in the call.",
        n, n);
  }
  return out;
}

Outcome check(const snapshot::Run& run) { return explain_strays(run, rule.value(), explain); }

}  // namespace
}  // namespace corral::rules

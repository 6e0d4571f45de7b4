// SPDX-License-Identifier: Apache-2.0
// A guard that put device 0 back after it had worked on another one.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "rules/current_device.h"

namespace corral::rules {
namespace {

using snapshot::Context;
using snapshot::NativeFrame;

Outcome check(const snapshot::Run& run);

const Registered<Rule> rule{Rule{
    .id = "stray.restored-device",
    .severity = Severity::error,
    .summary = "device 0 was set again after work on another device",
    .cause = "The thread worked on another device and then set device 0 again. Since CUDA 12 "
             "setting a device makes its context at once, though nothing ever runs there.",
    .verify = "Leave that call out: the context is gone.",
    .fix = "Put a device back only if it had a context (cuDevicePrimaryCtxGetState), or choose the "
           "device once for the whole thread.",
    .precedence = Precedence::call,
    .check = check}};

// The last context before this one of the same thread, if it is on another device.
const Context* worked_on(const Stray& stray) {
  const Context* last = nullptr;
  for (const Context* other : stray.earlier())
    if (other->tid != 0 && other->tid == stray.context().tid && !other->found) last = other;
  return last != nullptr && last->ordinal && last->ordinal != stray.context().ordinal ? last
                                                                                      : nullptr;
}

// The end of a `with cupy.cuda.Device(1):` block: Python tells the line of its head.
bool leaves_cupy_block(const Stray& stray, const Context& before) {
  const Statement* statement = stray.statement();
  if (statement == nullptr || !stray.library().empty() || !stray.in_module("/cupy/cuda/device."))
    return false;
  const bool is_with = statement->tokens.front().value == "with" ||
                       (statement->tokens.size() > 1 && statement->tokens[1].value == "with");
  if (!is_with || !statement->arguments_of("Device") ||
      device_text(stray).says == DeviceText::Says::number)
    return false;
  // With a number, it is another than this device's; without, the head must have opened the other.
  const auto arguments = statement->arguments_of("Device");
  const bool by_number = arguments->size() == 1 && arguments->front().kind == Token::Kind::number;
  return by_number || before.culprit == *stray.own();
}

bool asks_for_device(const Statement& statement) {
  return statement.calls_any({"cudaGetDevice", "getDevice", "get_device", "current_device"});
}

// A variable that was filled from "which device is current?" is passed to "set the device".
bool puts_back_by_name(const Stray& stray) {
  if (stray.statement() == nullptr || !stray.library().empty()) return false;
  if (!stray.in_module("/cuda/bindings/") && !stray.in_module("/cupy_backends/") &&
      !stray.in_module("/cupy/cuda/"))
    return false;
  const auto source = source_of(stray.run(), stray.context().pid, stray.own()->file);
  for (const std::string_view function : {"cudaSetDevice", "setDevice"}) {
    const auto arguments = stray.statement()->arguments_of(function);
    if (!arguments || arguments->size() != 1 || arguments->front().kind != Token::Kind::name)
      continue;
    const std::string& variable = arguments->front().value;
    for (const Statement& earlier : source->statements)
      if (earlier.first_line < stray.statement()->first_line &&
          earlier.scope == stray.statement()->scope && earlier.has_name(variable) &&
          asks_for_device(earlier))
        return true;
  }
  return false;
}

// Native code that calls the runtime, other than a framework whose Python calls are known.
const NativeFrame* native_guard(const Stray& stray) {
  const auto& frames = stray.context().stack.native;
  const auto set = std::ranges::find(frames, "cudaSetDevice", &NativeFrame::function);
  if (set == frames.end() || set + 1 == frames.end()) return nullptr;
  const NativeFrame& caller = *(set + 1);
  for (const std::string_view part : {"/torch/", "/cupy", "/cuda/bindings/", "/jaxlib/"})
    if (caller.module.find(part) != std::string::npos) return nullptr;
  return &caller;
}

std::optional<Explanation> explain(const Stray& stray) {
  if (stray.context().ordinal != 0) return std::nullopt;
  const Context* before = worked_on(stray);
  if (before == nullptr) return std::nullopt;
  const NativeFrame* guard = native_guard(stray);
  const bool cupy_block = leaves_cupy_block(stray, *before);
  const bool guard_exit =
      !stray.library().empty() &&
      (stray.is(stray.library().front(), "torch/cuda/__init__.py", {"__exit__"}));
  if (!cupy_block && !guard_exit && guard == nullptr && !puts_back_by_name(stray))
    return std::nullopt;
  Explanation out;
  out.evidence.push_back(fmt::format("the same thread had made a context on device {} before{}",
                                     *before->ordinal,
                                     before->culprit ? ", at " + place(*before->culprit) : ""));
  if (cupy_block) {
    out.cause =
        "The end of a `with cupy.cuda.Device(…)` block sets the device that was current before, "
        "device 0. Since CUDA 12 setting a device makes its context at once, though nothing ever "
        "runs there.";
    out.fix = fmt::format("cupy.cuda.Device({}).use() in place of the block.", meant_number(stray));
  }
  if (guard != nullptr)
    out.evidence.push_back(
        fmt::format("cudaSetDevice called by {}{}", printable(guard->module),
                    guard->function.empty() ? "" : ", " + printable(guard->function)));
  return out;
}

Outcome check(const snapshot::Run& run) { return explain_strays(run, rule.value(), explain); }

}  // namespace
}  // namespace corral::rules

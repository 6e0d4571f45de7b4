// SPDX-License-Identifier: Apache-2.0
#include "rules/context_words.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "snapshot/from_trace.h"

namespace corral::rules {

namespace {

constexpr std::string_view kUnseen = "made in a way that no hook saw";

std::string place_in_words(const snapshot::PythonFrame& frame) {
  return fmt::format("{}:{} in {}", printable(frame.file),
                     frame.line ? std::to_string(*frame.line) : "?", printable(frame.function));
}

bool holds(const std::vector<snapshot::PythonFrame>& frames, const snapshot::PythonFrame& frame) {
  return std::ranges::find(frames, frame) != frames.end();
}

bool has_no_stack(const snapshot::Context& context) {
  return context.stack.python.empty() && context.stack.native.empty();
}

std::string native_origin(const snapshot::Context& context) {
  for (const snapshot::NativeFrame& frame : context.stack.native) {
    if (frame.module.empty()) continue;
    return frame.function.empty() ? fmt::format("{} called from {}+{:#x}", printable(context.call),
                                                printable(frame.module), frame.offset)
                                  : fmt::format("{} called from {} in {}", printable(context.call),
                                                printable(frame.function), printable(frame.module));
  }
  return fmt::format("{} called from an unknown place: no stack was recorded",
                     printable(context.call));
}

}  // namespace

std::string stray_title(const snapshot::Context& context) {
  return fmt::format("{} (pid {}) {} a context on GPU {}", printable(context.process), context.pid,
                     context.denied ? "was refused" : "made",
                     context.gpu ? std::to_string(*context.gpu) : context.gpu_uuid);
}

std::string origin(const snapshot::Context& context, const snapshot::PythonFrame& culprit) {
  if (context.found && has_no_stack(context)) return std::string(kUnseen);
  if (holds(context.stack.python, culprit))
    return fmt::format("{} called from {}", printable(context.call), place_in_words(culprit));
  // The main thread's line did not make the call: another thread did, whatever set it to work.
  if (holds(context.stack.main_thread, culprit))
    return fmt::format("{} on thread {}, while the main thread was at {}", printable(context.call),
                       printable(context.thread), place_in_words(culprit));
  // Nor did the line that started CUDA, where a rule blames that.
  if (!has_no_stack(context))
    return fmt::format("{} on thread {}, which goes back to {}", printable(context.call),
                       printable(context.thread), place_in_words(culprit));
  return fmt::format("{} called from {}", printable(context.call), place_in_words(culprit));
}

std::string origin(const snapshot::Context& context) {
  if (context.found && has_no_stack(context)) return std::string(kUnseen);
  std::string text = context.culprit ? origin(context, *context.culprit) : native_origin(context);
  if (context.culprit && snapshot::is_own_code(context.culprit->file)) return text;
  const auto line = snapshot::culprit_of(context.stack.main_thread);
  if (line && snapshot::is_own_code(line->file))
    text += fmt::format("; the main thread was at {}", place_in_words(*line));
  return text;
}

std::string how_to_confine(const snapshot::Run& run) {
  if (run.expectation.kind == snapshot::Expectation::Kind::rank)
    return "a corral run --gpus of its own for each rank";
  return run.confinement.requested ? "corral run --gpus with --enforce auto" : "corral run --gpus";
}

std::vector<std::string> stack_words(const snapshot::Context& context) {
  constexpr std::size_t kMostOfEach = 8;
  std::vector<std::string> lines;
  for (const snapshot::PythonFrame& frame : context.stack.python) {
    if (lines.size() == kMostOfEach) break;
    lines.push_back("at " + place_in_words(frame));
  }
  const std::size_t most = lines.size() + kMostOfEach;
  for (const snapshot::NativeFrame& frame : context.stack.native) {
    if (lines.size() == most) break;
    if (frame.module.empty()) continue;
    const std::string name =
        frame.function.empty() ? fmt::format("+{:#x}", frame.offset) : printable(frame.function);
    lines.push_back(fmt::format("by {} in {}", name, printable(frame.module)));
  }
  return lines;
}

}  // namespace corral::rules

// SPDX-License-Identifier: Apache-2.0
#include "rules/context_words.h"

#include <fmt/format.h>

#include "base/text.h"

namespace corral::rules {

std::string stray_title(const snapshot::Context& context) {
  return fmt::format("{} (pid {}) {} a context on GPU {}", printable(context.process), context.pid,
                     context.denied ? "was refused" : "made",
                     context.gpu ? std::to_string(*context.gpu) : context.gpu_uuid);
}

std::string origin(const snapshot::Context& context, const snapshot::PythonFrame& culprit) {
  const std::string place =
      fmt::format("{}:{} in {}", printable(culprit.file),
                  culprit.line ? std::to_string(*culprit.line) : "?", printable(culprit.function));
  // The line did not call it: another thread did, for whatever the main thread had set going.
  if (context.stack.of_main_thread)
    return fmt::format("{} on a thread without Python, while the main thread was at {}",
                       context.call, place);
  return fmt::format("{} called from {}", context.call, place);
}

std::string origin(const snapshot::Context& context) {
  if (context.culprit) return origin(context, *context.culprit);
  for (const snapshot::NativeFrame& frame : context.stack.native) {
    if (frame.module.empty()) continue;
    return frame.function.empty() ? fmt::format("{} called from {}+{:#x}", context.call,
                                                printable(frame.module), frame.offset)
                                  : fmt::format("{} called from {} in {}", context.call,
                                                printable(frame.function), printable(frame.module));
  }
  return fmt::format("{} called from an unknown place: no stack was recorded", context.call);
}

}  // namespace corral::rules

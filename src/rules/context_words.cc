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
  return fmt::format("{} called from {}:{} in {}", context.call, printable(culprit.file),
                     culprit.line ? std::to_string(*culprit.line) : "?",
                     printable(culprit.function));
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

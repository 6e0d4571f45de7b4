// SPDX-License-Identifier: Apache-2.0
#include "rules/memory_words.h"

#include <fmt/format.h>

#include "base/text.h"

namespace corral::rules {

std::string memory_text(std::uint64_t bytes) {
  constexpr double kMib = 1 << 20;
  constexpr double kGib = 1 << 30;
  const auto amount = static_cast<double>(bytes);
  if (amount >= 10 * kGib) return fmt::format("{:.1f} GiB", amount / kGib);
  if (amount >= kMib) return fmt::format("{:.0f} MiB", amount / kMib);
  return fmt::format("{} bytes", bytes);
}

std::string place_text(const std::optional<snapshot::PythonFrame>& frame) {
  if (!frame) return "";
  return fmt::format(" ({}:{})", printable(frame->file),
                     frame->line ? std::to_string(*frame->line) : "?");
}

}  // namespace corral::rules

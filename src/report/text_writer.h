// SPDX-License-Identifier: Apache-2.0
// Lines of a report for people, all of which begin alike.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <string_view>

#include "report/run_text.h"
#include "snapshot/run.h"

namespace corral::report {

class TextWriter {
 public:
  TextWriter(const snapshot::Run& run, TextStyle style)
      : prefix_(run.simulated ? "corral (SIMULATED): " : "corral: "), style_(style) {}

  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    out_ += prefix_;
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    out_ += '\n';
  }
  template <class... Args>
  void detail(fmt::format_string<Args...> format, Args&&... args) {
    out_ += "    ";
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    out_ += '\n';
  }
  std::string strong(std::string_view text, std::string_view sgr) const {
    return style_.color ? fmt::format("\x1b[{}m{}\x1b[0m", sgr, text) : std::string(text);
  }
  bool verbose() const { return style_.verbose; }
  std::string take() { return std::move(out_); }

 private:
  std::string prefix_;
  TextStyle style_;
  std::string out_;
};

inline constexpr std::string_view kRed = "1;31";
inline constexpr std::string_view kYellow = "33";
inline constexpr std::string_view kGreen = "32";

}  // namespace corral::report

// SPDX-License-Identifier: Apache-2.0
// Small pure functions on text.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace corral {

std::string_view trim(std::string_view text);

// "a,b" by ',' gives {"a","b"}; empty fields are kept; empty text gives one empty field.
std::vector<std::string_view> split(std::string_view text, char separator);

std::string join(const std::vector<std::string>& parts, std::string_view separator);

std::string lower(std::string_view text);

// "0 and 1", "0, 1 and 2": for sentences in errors.
std::string join_and(const std::vector<std::string>& parts);

// The whole text as a number; nullopt when anything else is in it or it does not fit. `base` is of
// whole numbers; "nan" and "inf" are numbers where Number has them.
template <class Number>
std::optional<Number> parse_number(std::string_view text, int base = 10) {
  Number value{};
  const auto parsed = [&] {
    if constexpr (std::is_floating_point_v<Number>)
      return std::from_chars(text.data(), text.data() + text.size(), value);
    else
      return std::from_chars(text.data(), text.data() + text.size(), value, base);
  }();
  const auto [end, error] = parsed;
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

// Words as a shell would need them typed: quotes only where necessary.
std::string shell_quote(std::string_view word);

// Text from the machine made safe for a terminal: control characters and broken UTF-8 as \xNN.
std::string printable(std::string_view text);

}  // namespace corral

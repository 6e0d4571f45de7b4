// SPDX-License-Identifier: Apache-2.0
#include "host/number_list.h"

#include <algorithm>

#include "base/text.h"

namespace corral::host {
namespace {

constexpr const char* kExample = "write it as 0-3,8";

std::unexpected<Error> wrong(std::string_view text, const std::string& what) {
  return fail("\"" + printable(text) + "\": " + what, kExample);
}

Result<unsigned> parse_one(std::string_view text, std::string_view part) {
  const auto number = parse_number<unsigned>(part);
  if (number && *number <= kHighestNumber) return *number;
  if (part.empty()) return wrong(text, "a number is missing");
  if (part.starts_with('-')) return wrong(text, "negative numbers do not exist");
  if (std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; }))
    return wrong(text, std::string(part) + " is larger than " + std::to_string(kHighestNumber));
  return wrong(text, "\"" + printable(part) + "\" is not a number");
}

}  // namespace

Result<std::vector<unsigned>> parse_number_list(std::string_view text) {
  std::vector<unsigned> numbers;
  const std::string_view list = trim(text);
  if (list.empty()) return numbers;
  for (const std::string_view part : split(list, ',')) {
    if (part.starts_with('-')) return wrong(list, "negative numbers do not exist");
    const auto dash = part.find('-');
    CORRAL_TRY(const unsigned first, parse_one(list, part.substr(0, dash)));
    unsigned last = first;
    if (dash != part.npos) {
      CORRAL_TRY(last, parse_one(list, part.substr(dash + 1)));
    }
    if (last < first) return wrong(list, "the range " + std::string(part) + " runs backwards");
    for (unsigned number = first; number <= last; ++number) numbers.push_back(number);
  }
  std::ranges::sort(numbers);
  if (const auto twice = std::ranges::adjacent_find(numbers); twice != numbers.end())
    return wrong(list, std::to_string(*twice) + " is named twice");
  return numbers;
}

std::string number_list_text(const std::vector<unsigned>& numbers) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i;
    while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
    std::string part = std::to_string(numbers[i]);
    if (end > i) part.append("-").append(std::to_string(numbers[end]));
    parts.push_back(std::move(part));
    i = end + 1;
  }
  return join(parts, ",");
}

}  // namespace corral::host

// SPDX-License-Identifier: Apache-2.0
#include "launch/option_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/text.h"

namespace corral::launch {
namespace {

std::string without_blanks(std::string_view text) {
  std::string out(text);
  std::erase_if(out, [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); });
  return out;
}

// At the commas that stand outside of brackets; nullopt: a bracket too many or too few.
std::optional<std::vector<std::string_view>> split_outside_brackets(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') ++depth;
    if (text[i] == ']') --depth;
    if (depth < 0 || depth > 1) return std::nullopt;
    if (text[i] != ',' || depth != 0) continue;
    parts.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  if (depth != 0) return std::nullopt;
  parts.push_back(text.substr(begin));
  return parts;
}

// How many letters must be put in, left out or changed to make one of the other.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t corner = row[0];
    row[0] = i + 1;
    for (std::size_t k = 0; k < b.size(); ++k) {
      const std::size_t above = row[k + 1];
      row[k + 1] =
          std::min({above + 1, row[k] + 1, corner + static_cast<std::size_t>(a[i] != b[k])});
      corner = above;
    }
  }
  return row.back();
}

// Empty when none is near.
std::string_view nearest(std::string_view name, std::span<const std::string_view> names) {
  std::string_view best;
  std::size_t least = name.size() / 2 + 1;
  for (const std::string_view known : names) {
    const std::size_t away = distance(lower(name), known);
    if (away >= least) continue;
    least = away;
    best = known;
  }
  return best;
}

std::string names_text(const OptionSource& source) {
  return fmt::format("{}'s options are {}", source.framework, fmt::join(source.names, ", "));
}

std::unexpected<Error> wrong_list(const OptionSource& source, std::string_view text,
                                  std::string_view what) {
  return fail(fmt::format("{} \"{}\": {}", source.option, printable(text), what),
              fmt::format("write it as {} {}", source.option, source.example));
}

}  // namespace

std::unexpected<Error> wrong_value(const OptionSource& source, const GivenOption& given,
                                   std::string_view what, std::string_view hint) {
  return fail(
      fmt::format("{} \"{}:{}\": {}", source.option, given.name, printable(given.value), what),
      std::string(hint));
}

std::optional<double> decimal(std::string_view text) {
  if (text.find_first_not_of("0123456789.") != text.npos) return std::nullopt;
  return parse_number<double>(text);
}

Result<std::vector<GivenOption>> parse_option_list(const OptionSource& source,
                                                   std::string_view text) {
  const std::string list = without_blanks(text);
  if (list.empty()) return wrong_list(source, text, "it is empty");
  const auto parts = split_outside_brackets(list);
  if (!parts) return wrong_list(source, text, "a [ without its ], or one within another");
  std::vector<GivenOption> out;
  for (const std::string_view part : *parts) {
    if (part.empty()) return wrong_list(source, text, "nothing between two commas");
    const std::size_t colon = part.find(':');
    if (colon == part.npos || colon == 0 || colon + 1 == part.size())
      return wrong_list(source, text,
                        fmt::format("\"{}\" is not of the form name:value", printable(part)));
    GivenOption given{std::string(part.substr(0, colon)), std::string(part.substr(colon + 1))};
    if (std::ranges::find(source.names, given.name) == source.names.end()) {
      const std::string_view near = nearest(given.name, source.names);
      return fail(fmt::format("{}: {} has no option \"{}\"{}", source.option, source.framework,
                              printable(given.name),
                              near.empty() ? "" : fmt::format("; did you mean {}?", near)),
                  names_text(source));
    }
    if (std::ranges::find(out, given.name, &GivenOption::name) != out.end())
      return wrong_list(source, text, given.name + " is given twice");
    out.push_back(std::move(given));
  }
  return out;
}

}  // namespace corral::launch

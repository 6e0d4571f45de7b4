// SPDX-License-Identifier: Apache-2.0
// "name:value,name:value" as PyTorch writes its allocator's settings, checked against known names.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace corral::launch {

struct GivenOption {
  std::string name;
  std::string value;  // never empty
};

// Where an option list came from, for the errors.
struct OptionSource {
  std::string_view option;     // "--torch-alloc"
  std::string_view framework;  // "PyTorch", whose options they are
  std::string_view example;    // "expandable_segments:True"
  std::span<const std::string_view> names;
};

// Blanks are left out, and commas and colons between brackets belong to the value. Errors: no
// option, one without a name or a value, an unclosed bracket, a name that is not among
// `source.names` (with the nearest one, and the list), a name given twice.
Result<std::vector<GivenOption>> parse_option_list(const OptionSource& source,
                                                   std::string_view text);

// `source.option "name:value": what is wrong`.
std::unexpected<Error> wrong_value(const OptionSource& source, const GivenOption& given,
                                   std::string_view what, std::string_view hint);

// A plain decimal number: "0.5", ".8", "1"; nullopt for anything else, and for inf and nan.
std::optional<double> decimal(std::string_view text);

}  // namespace corral::launch

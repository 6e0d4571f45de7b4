// SPDX-License-Identifier: Apache-2.0
// Lists of small numbers as the kernel writes CPUs and memory nodes: "0-3,8".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace corral::host {

// More CPUs (CONFIG_NR_CPUS) and memory nodes than any kernel knows.
constexpr unsigned kHighestNumber = 8191;

// Ascending. Empty for an empty text, which the kernel writes for "none". The error quotes the text
// and says what is wrong: not a number, negative, "3-0", a number named twice, too large.
Result<std::vector<unsigned>> parse_number_list(std::string_view text);

// {0,1,2,8} as "0-2,8"; takes ascending numbers.
std::string number_list_text(const std::vector<unsigned>& numbers);

}  // namespace corral::host

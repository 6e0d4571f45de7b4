// SPDX-License-Identifier: Apache-2.0
// Amounts of memory, and places in the source, in the words of findings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "snapshot/run.h"

namespace corral::rules {

// "4096 bytes", "20 MiB", "24.5 GiB".
std::string memory_text(std::uint64_t bytes);

// " (train.py:42)"; empty when unknown.
std::string place_text(const std::optional<snapshot::PythonFrame>& frame);

}  // namespace corral::rules

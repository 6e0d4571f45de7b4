// SPDX-License-Identifier: Apache-2.0
// Opens what a job left in a folder that it can write to.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/fd.h"

namespace corral::trace {

struct RegularFile {
  Fd fd;  // for reading
  std::uint64_t bytes = 0;
};

// Opens a regular file and nothing else: no link is followed, no pipe or node opened. The error
// names what is there instead.
Result<RegularFile> open_regular_file(const std::string& path);

}  // namespace corral::trace

// SPDX-License-Identifier: Apache-2.0
// Whole-file reads and writes and folder listings, as values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace corral {

// open(2) with O_CLOEXEC; the error names the path.
Result<Fd> open_file(const std::string& path, int flags, unsigned mode = 0);

// Reads to the end; works on /proc and /sys files whose size is 0. `limit_bytes` refuses larger
// files.
Result<std::string> read_file(const std::string& path, std::size_t limit_bytes = 64U << 20);

// One write(2) of the whole text to an existing file, as kernel interface files want it.
Result<void> write_existing(const std::string& path, std::string_view text);

// Writes a new file or replaces the old one's content.
Result<void> write_file(const std::string& path, std::string_view text, unsigned mode = 0644);

// Names in a folder without "." and "..", sorted.
Result<std::vector<std::string>> list_folder(const std::string& path);

// write(2) until all is out; retries EINTR.
Result<void> write_all(int fd, std::string_view text);

}  // namespace corral

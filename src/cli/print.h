// SPDX-License-Identifier: Apache-2.0
// Text to the standard streams. A stream that is closed or full must not end Corral: printing
// through stdio would throw, and what the exit code says would be lost.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "base/file.h"

namespace corral::cli {

template <class... Args>
void print_out(fmt::format_string<Args...> format, Args&&... args) {
  (void)write_all(STDOUT_FILENO, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void print_error(fmt::format_string<Args...> format, Args&&... args) {
  (void)write_all(STDERR_FILENO, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace corral::cli

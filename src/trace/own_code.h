// SPDX-License-Identifier: Apache-2.0
// Which Python files are the user's own code: one rule for the report and for the shim, which may
// use libc alone.
#pragma once

#include <stddef.h>
#include <string.h>

namespace corral::trace {

inline bool begins_with(const char* text, size_t bytes, const char* beginning) {
  const size_t length = strlen(beginning);
  return bytes >= length && memcmp(text, beginning, length) == 0;
}

// Text that was executed without a file: a program given with -c or typed in, and also what
// libraries generate.
inline bool is_code_text(const char* file, size_t bytes) {
  return (bytes == 8 && memcmp(file, "<string>", 8) == 0) ||
         (bytes == 7 && memcmp(file, "<stdin>", 7) == 0);
}

inline bool begins_a_version(const char* text, size_t bytes, const char* beginning) {
  const size_t length = strlen(beginning);
  return bytes > length && begins_with(text, bytes, beginning) && text[length] >= '0' &&
         text[length] <= '9';
}

// Whether a file, as Python names it, is the user's own code: not in site-packages or
// dist-packages, the standard library or a frozen module.
inline bool is_own_code(const char* file, size_t bytes) {
  if (bytes > 0 && file[0] == '<') {  // "<frozen importlib._bootstrap>"
    return is_code_text(file, bytes) || begins_with(file, bytes, "<ipython-input");
  }
  const char* const end = file + bytes;
  for (const char* at = file; at < end; ++at) {
    if (*at != '/') continue;
    const auto left = static_cast<size_t>(end - at);
    if (begins_with(at, left, "/site-packages/") || begins_with(at, left, "/dist-packages/")) {
      return false;
    }
    // The standard library: …/lib/python3.12/threading.py, …/lib/python312.zip/….
    if (begins_a_version(at, left, "/lib/python") || begins_a_version(at, left, "/lib64/python")) {
      return false;
    }
  }
  return true;
}

}  // namespace corral::trace

// SPDX-License-Identifier: Apache-2.0
// Text in buffers of the caller, for code that may not allocate.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace corral::shim {

// Text under construction in a buffer of the caller; what does not fit is left out.
struct Text {
  char* buffer;
  size_t capacity;
  size_t used = 0;

  void add(const char* text) {
    const size_t bytes = strnlen(text, capacity - used);
    memcpy(buffer + used, text, bytes);
    used += bytes;
  }
  void add(unsigned value) {
    char digits[12];
    size_t at = sizeof digits - 1;
    digits[at] = '\0';
    do {
      digits[--at] = static_cast<char>('0' + value % 10);
      value /= 10;
    } while (value != 0);
    add(digits + at);
  }
};

// Writes a character at `to`, where there are four bytes of room; how many it took.
inline size_t put_utf8(char* to, uint32_t code_point) {
  if (code_point < 0x80) {
    to[0] = static_cast<char>(code_point);
    return 1;
  }
  // A byte of a file name that Python could not decode stands as a lone surrogate: give it back.
  if (code_point >= 0xDC80 && code_point <= 0xDCFF) {
    to[0] = static_cast<char>(code_point - 0xDC00);
    return 1;
  }
  const unsigned length = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
  for (unsigned i = length - 1; i > 0; --i) {
    to[i] = static_cast<char>(0x80 | (code_point & 0x3F));
    code_point >>= 6;
  }
  constexpr unsigned char kLead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  to[0] = static_cast<char>(kLead[length] | code_point);
  return length;
}

}  // namespace corral::shim

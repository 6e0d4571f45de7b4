// SPDX-License-Identifier: Apache-2.0
#include "shim/environment.h"

#include <string.h>
#include <unistd.h>

#include "shim/safe_read.h"

namespace corral::shim {
namespace {

constexpr size_t kNameBytes = 40;        // longest name that we ask for, with its '='
constexpr size_t kMaxVariables = 16384;  // a list without an end is not a list

void take_value(Variable& variable, const char* text) {
  char last;
  variable.set = true;
  variable.bytes = safe_read(variable.value, text, variable.capacity);
  const size_t length = strnlen(variable.value, variable.bytes);
  variable.cut =
      length == variable.capacity && safe_read_all(&last, text + length, 1) && last != '\0';
  variable.bytes = length;
}

void match(Variable* variables, size_t count, const char* entry) {
  char name[kNameBytes];
  const size_t bytes = safe_read(name, entry, sizeof name);
  for (size_t i = 0; i < count; ++i) {
    const size_t length = strlen(variables[i].name);
    if (!variables[i].set && length < bytes && name[length] == '=' &&
        memcmp(name, variables[i].name, length) == 0) {
      take_value(variables[i], entry + length + 1);
    }
  }
}

// Calls visit(entry) for each entry of `environ`.
template <class Visit>
void each_entry(Visit visit) {
  const char* entries[64];
  char** const list = environ;
  if (list == nullptr) return;
  for (size_t at = 0; at < kMaxVariables;) {
    const size_t got = safe_read(entries, list + at, sizeof entries) / sizeof *entries;
    if (got == 0) return;
    for (size_t i = 0; i < got; ++i) {
      if (entries[i] == nullptr) return;
      visit(entries[i]);
    }
    at += got;
  }
}

}  // namespace

void read_variables(Variable* variables, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    variables[i].set = false;
    variables[i].cut = false;
    variables[i].bytes = 0;
  }
  each_entry([&](const char* entry) { match(variables, count, entry); });
}

uint64_t environment_mark() {
  // setenv always makes a new string, so the addresses tell.
  uint64_t mark = 1;
  each_entry([&](const char* entry) {
    mark = (mark ^ reinterpret_cast<uint64_t>(entry)) * 0x9E3779B97F4A7C15ULL;
    mark ^= mark >> 29;
  });
  return mark;
}

}  // namespace corral::shim

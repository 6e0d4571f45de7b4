// SPDX-License-Identifier: Apache-2.0
// Parses and answers fault injection. Linked into the simulated libraries: libc only.
#include "fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace corral::sim {

void Faults::read(const char* variable) {
  const char* text = getenv(variable);
  count_ = 0;
  while (text != nullptr && *text != '\0' && count_ < kMax) {
    const size_t length = strcspn(text, ",");
    char entry[128] = {};
    if (length < sizeof entry) memcpy(entry, text, length);
    text += length + (text[length] == ',' ? 1 : 0);

    Fault& fault = faults_[count_];
    char* equals = strchr(entry, '=');
    if (equals == nullptr) continue;
    *equals = '\0';
    fault.gpu = -1;
    if (char* hash = strchr(entry, '#')) {
      *hash = '\0';
      fault.gpu = atoi(hash + 1);
    }
    snprintf(fault.function, sizeof fault.function, "%.79s", entry);
    fault.code = atoi(equals + 1);
    const char* after = strchr(equals + 1, '@');
    fault.calls_left = after != nullptr ? atoi(after + 1) : 0;
    ++count_;
  }
}

int Faults::search(const char* function, int gpu) {
  for (int i = 0; i < count_; ++i) {
    Fault& fault = faults_[i];
    if (strcmp(fault.function, function) != 0 || (fault.gpu >= 0 && fault.gpu != gpu)) continue;
    if (fault.calls_left.load() > 0 && fault.calls_left.fetch_sub(1) > 0) continue;
    return fault.code;
  }
  return 0;
}

}  // namespace corral::sim

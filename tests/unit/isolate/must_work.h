// SPDX-License-Identifier: Apache-2.0
// A feature that this machine lacks is a skip, unless CORRAL_MUST_WORK names it: then it fails.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "base/text.h"

namespace corral {

inline bool must_work(std::string_view feature) {
  const char* list = std::getenv("CORRAL_MUST_WORK");
  if (list == nullptr) return false;
  for (const std::string_view name : split(list, ','))
    if (name == feature) return true;
  return false;
}

}  // namespace corral

#define CORRAL_NEEDS(feature, condition, why)          \
  do {                                                 \
    if (!(condition)) {                                \
      ASSERT_FALSE(corral::must_work(feature)) << why; \
      GTEST_SKIP() << why;                             \
    }                                                  \
  } while (0)

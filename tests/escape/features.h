// SPDX-License-Identifier: Apache-2.0
// Which columns of the table this machine can fill.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "confined_run.h"

namespace corral::escape {

struct Missing {
  std::string feature;  // as CORRAL_MUST_WORK names it; empty: nothing is missing
  std::string why;
};

Missing missing(const Column& column);

// CORRAL_MUST_WORK names it: then a skip is a failure.
bool must_work(std::string_view feature);

// "Landlock_as_user"
std::string test_name(const Column& column);

}  // namespace corral::escape

#define CORRAL_NEEDS_COLUMN(column)                                           \
  do {                                                                        \
    if (const corral::escape::Missing lack = corral::escape::missing(column); \
        !lack.feature.empty()) {                                              \
      ASSERT_FALSE(corral::escape::must_work(lack.feature)) << lack.why;      \
      GTEST_SKIP() << lack.why;                                               \
    }                                                                         \
  } while (0)

// SPDX-License-Identifier: Apache-2.0
#include "launch/descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/fd.h"

namespace corral::launch {
namespace {

bool passes_on(int fd) { return std::ranges::binary_search(open_descriptors(), fd); }

TEST(descriptors, of_our_own_are_not_the_jobs) {
  const Fd given(::open("/dev/null", O_RDWR));
  const Fd ours(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_TRUE(passes_on(given.get()));
  EXPECT_FALSE(passes_on(ours.get()));
}

TEST(descriptors, that_came_later_are_closed_at_exec) {
  const Fd given(::open("/dev/null", O_RDWR));
  const auto kept = open_descriptors();
  const Fd later(::open("/dev/null", O_RDWR));
  close_on_exec_except(kept);
  EXPECT_TRUE(passes_on(given.get()));
  EXPECT_FALSE(passes_on(later.get()));
}

}  // namespace
}  // namespace corral::launch

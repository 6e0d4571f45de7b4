// SPDX-License-Identifier: Apache-2.0
// The id of the kernel's start, without the line's end.
#include "host/boot.h"

#include <gtest/gtest.h>

#include "fixture_host.h"

namespace corral::host {
namespace {

TEST(boot_id, is_the_text_of_the_file) {
  const tests::MadeHost host;
  host.write("/proc/sys/kernel/random/boot_id", "6dd9b7c4-0f4f-4a38-9b8a-3a6f1f2f3c11\n");
  EXPECT_EQ(boot_id(host.root()).value(), "6dd9b7c4-0f4f-4a38-9b8a-3a6f1f2f3c11");
}

TEST(boot_id, of_a_host_without_one_is_an_error) {
  const tests::MadeHost host;
  EXPECT_FALSE(boot_id(host.root()));
}

}  // namespace
}  // namespace corral::host

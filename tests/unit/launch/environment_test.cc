// SPDX-License-Identifier: Apache-2.0
#include "launch/environment.h"

#include <gtest/gtest.h>

namespace corral::launch {
namespace {

Environment environment(std::vector<const char*> entries) {
  entries.push_back(nullptr);
  return Environment(entries.data());
}

TEST(environment, set_replaces_every_entry_of_that_name_only) {
  Environment env = environment({"A=1", "AB=2", "A=3"});
  env.set("A", "x");
  EXPECT_EQ(env.entries(), (std::vector<std::string>{"AB=2", "A=x"}));
}

TEST(environment, get_tells_unset_from_empty) {
  const Environment env = environment({"A="});
  EXPECT_EQ(env.get("A"), "");
  EXPECT_EQ(env.get("B"), std::nullopt);
}

TEST(environment, prepend_never_makes_an_empty_field) {
  Environment env = environment({"EMPTY=", "OLD=/a:/b"});
  env.prepend_path("EMPTY", "/x");
  env.prepend_path("NEW", "/x");
  env.prepend_path("OLD", "/x");
  EXPECT_EQ(env.get("EMPTY"), "/x");
  EXPECT_EQ(env.get("NEW"), "/x");
  EXPECT_EQ(env.get("OLD"), "/x:/a:/b");
}

TEST(environment, an_entry_without_a_value_is_kept) {
  EXPECT_EQ(environment({"ODD"}).entries(), std::vector<std::string>{"ODD"});
}

}  // namespace
}  // namespace corral::launch

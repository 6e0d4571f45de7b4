// SPDX-License-Identifier: Apache-2.0
// docs/rules.md is written from the rules themselves. After a change of a rule's texts:
// CORRAL_WRITE_DOCS=1 build/…/tests/unit/unit_rules --gtest_filter='rules_page.*'
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "rules/engine.h"

namespace corral::rules {
namespace {

std::string page() {
  std::string out =
      "# Rules\n\n"
      "What Corral says of a run, by the id that stands behind each finding. An id is never given "
      "another meaning.\n"
      "The texts here are the general ones: a finding names the line, the values it rests on, and "
      "the device that was\n"
      "meant. Written from the rules themselves; `tests/unit/rules/rules_page_test.cc` says how.\n";
  for (const Rule* rule : all_rules())
    out += fmt::format("\n## {}\n\n{}{}: {}.\n\n* Cause: {}\n* To see it by hand: {}\n* Fix: {}\n",
                       rule->id, name(rule->severity),
                       rule->fallback ? ", when no other rule explains it" : "", rule->summary,
                       rule->cause, rule->verify, rule->fix);
  return out;
}

TEST(rules_page, is_what_the_rules_say) {
  const std::string path = CORRAL_RULES_PAGE;
  if (std::getenv("CORRAL_WRITE_DOCS") != nullptr) {
    ASSERT_TRUE(write_file(path, page()));
  }
  const auto there = read_file(path);
  ASSERT_TRUE(there) << path;
  EXPECT_EQ(*there, page()) << "write it anew: see the head of this test";
}

}  // namespace
}  // namespace corral::rules

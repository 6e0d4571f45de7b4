// SPDX-License-Identifier: Apache-2.0
// Every way out against every method: each cell of the table, on the kernel that runs this.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "base/file.h"
#include "features.h"
#include "table.h"

namespace corral::escape {
namespace {

char letter(const Ended& ended) {
  if (!ended.status) return 'x';
  switch (*ended.status) {
    case 0:
      return 'o';
    case 1:
      return 'r';
    case 77:
      return '-';
    default:
      return '?';
  }
}

Ended attempt(const Ground& ground, const Column& column, const Row& row) {
  return run(ground, column, row.setup,
             {ground.folder() + "/escape", row.way, path_for(ground, row.setup)});
}

// Both letters, so that a failure names the cell and what was found in it.
std::string told(const Row& row, const Column& column, char what) {
  return std::string(row.name) + " (" + row.meaning + "), " + column.name + ", " + column.person +
         ": " + what;
}

class Escape : public testing::TestWithParam<std::size_t> {};

TEST_P(Escape, every_way_ends_as_the_table_says) {
  const Column& column = columns()[GetParam()];
  CORRAL_NEEDS_COLUMN(column);
  const Ground ground;
  ASSERT_EQ(ground.trouble(), "");
  for (const Row& row : rows()) {
    const Ended ended = attempt(ground, column, row);
    EXPECT_TRUE(ended.left.empty()) << row.name << ": processes were left in the cgroup";
    EXPECT_EQ(ended.lasting_group, "") << row.name;
    // A way that this kernel or machine does not have is no finding.
    if (letter(ended) == '-') continue;
    EXPECT_EQ(told(row, column, letter(ended)), told(row, column, expected(row, GetParam())))
        << ended.message;
  }
}

INSTANTIATE_TEST_SUITE_P(all, Escape, testing::Range(std::size_t{0}, columns().size()),
                         [](const auto& parameter) {
                           return test_name(columns()[parameter.param]);
                         });

TEST(table, tight_refuses_everything_inside_the_promise) {
  for (const Row& row : rows())
    for (std::size_t i = 0; i < columns().size(); ++i)
      if (columns()[i].tight && expected(row, i) == 'o') {
        EXPECT_TRUE(std::string_view(row.meaning).find("outside the promise") !=
                    std::string_view::npos)
            << row.name << ", " << columns()[i].person;
      }
}

TEST(table, every_way_is_seen_to_work_without_confinement) {
  std::size_t working = 0;
  for (const Row& row : rows())
    if (expected(row, 0) == 'o') ++working;
  EXPECT_GE(working, 60U);
}

TEST(table, documentation_is_the_table_of_the_test) {
  const auto text = read_file(ESCAPE_DOCS);
  ASSERT_TRUE(text) << text.error().what;
  EXPECT_NE(text->find(markdown()), std::string::npos)
      << "put the output of `escape_test --markdown` into docs/isolation.md";
}

}  // namespace

// Prints what happens instead of comparing it: to fill in a new row.
void discover() {
  const Ground ground;
  if (!ground.trouble().empty()) std::printf("%s\n", ground.trouble().c_str());
  for (const Row& row : rows()) {
    std::string found;
    std::string why;
    for (std::size_t i = 0; i < columns().size(); ++i) {
      if (i > 0 && columns()[i].user && !columns()[i - 1].user) found += ' ';
      const Ended ended = attempt(ground, columns()[i], row);
      found += letter(ended);
      if (letter(ended) == 'x' || letter(ended) == '?') why += "   " + ended.message;
    }
    std::printf("%-24s %s%s\n", row.name, found.c_str(), why.c_str());
    std::fflush(stdout);
  }
}

}  // namespace corral::escape

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--discover") == 0) return corral::escape::discover(), 0;
  if (argc == 2 && std::strcmp(argv[1], "--markdown") == 0) {
    std::fputs(corral::escape::markdown().c_str(), stdout);
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

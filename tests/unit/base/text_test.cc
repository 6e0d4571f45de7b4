// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <gtest/gtest.h>

namespace corral {
namespace {

TEST(text, split_keeps_empty_fields) {
  EXPECT_EQ(split("", ','), std::vector<std::string_view>{""});
  EXPECT_EQ(split(",a,", ','), (std::vector<std::string_view>{"", "a", ""}));
}

TEST(text, trim_takes_blanks_off_both_ends_only) {
  EXPECT_EQ(trim(" \ta b\n"), "a b");
  EXPECT_EQ(trim(" \n"), "");
}

TEST(text, parse_number_wants_the_whole_text) {
  EXPECT_EQ(parse_number<unsigned>("17"), 17U);
  EXPECT_EQ(parse_number<unsigned>("ff", 16), 255U);
  for (const char* bad : {"", " 1", "1 ", "+1", "-1", "1x", "99999999999999999999"})
    EXPECT_EQ(parse_number<unsigned>(bad), std::nullopt) << bad;
}

TEST(text, join_and_reads_as_a_sentence) {
  EXPECT_EQ(join_and({}), "");
  EXPECT_EQ(join_and({"0"}), "0");
  EXPECT_EQ(join_and({"0", "1"}), "0 and 1");
  EXPECT_EQ(join_and({"0", "1", "2"}), "0, 1 and 2");
}

TEST(text, join_puts_the_separator_between_all_parts) {
  EXPECT_EQ(join({"", "a", ""}, ","), ",a,");
}

TEST(text, shell_quote_quotes_only_what_a_shell_would_change) {
  EXPECT_EQ(shell_quote("train.py"), "train.py");
  EXPECT_EQ(shell_quote(""), "''");
  EXPECT_EQ(shell_quote("a b"), "'a b'");
  EXPECT_EQ(shell_quote("it's"), "'it'\\''s'");
}

TEST(text, printable_hides_what_a_terminal_would_obey) {
  EXPECT_EQ(printable("plain ✓"), "plain ✓");
  EXPECT_EQ(printable("\x1b[31m"), "\\x1b[31m");
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b") << "C1 control introducer";
  EXPECT_EQ(printable("a\u202egpj.exe"), "a\\xe2\\x80\\xaegpj.exe") << "right-to-left override";
  EXPECT_EQ(printable("\xff\xc0\xaf"), "\\xff\\xc0\\xaf") << "broken UTF-8";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "surrogate";
  EXPECT_EQ(printable("\xe2\x82"), "\\xe2\\x82") << "cut sequence";
}

TEST(text, parses_fractions_where_the_number_has_them) {
  EXPECT_EQ(parse_number<double>("12.5"), 12.5);
  EXPECT_EQ(parse_number<double>("30"), 30);
  for (const char* text : {"", "1e999", "1.5x", " 1", "+1"})
    EXPECT_EQ(parse_number<double>(text), std::nullopt) << text;
  EXPECT_EQ(parse_number<int>("12.5"), std::nullopt);
}

}  // namespace
}  // namespace corral

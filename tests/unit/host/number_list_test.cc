// SPDX-License-Identifier: Apache-2.0
#include "host/number_list.h"

#include <gtest/gtest.h>

#include "fixture_host.h"
#include "host/numa.h"

namespace corral::host {
namespace {

std::string wrong(std::string_view text) {
  const auto numbers = parse_number_list(text);
  return numbers ? "taken: " + number_list_text(*numbers) : numbers.error().what;
}

bool says(const std::string& text, std::string_view words) {
  return text.find(words) != std::string::npos;
}

TEST(number_list, reads_numbers_and_ranges_in_any_order) {
  EXPECT_EQ(*parse_number_list("0-3,8"), (std::vector<unsigned>{0, 1, 2, 3, 8}));
  EXPECT_EQ(*parse_number_list("8,2-2,0\n"), (std::vector<unsigned>{0, 2, 8}));
  EXPECT_TRUE(parse_number_list("\n")->empty());
}

TEST(number_list, says_what_is_wrong) {
  EXPECT_TRUE(says(wrong("0-3,2"), "2 is named twice")) << wrong("0-3,2");
  EXPECT_TRUE(says(wrong("3-0"), "runs backwards")) << wrong("3-0");
  EXPECT_TRUE(says(wrong("-1"), "negative")) << wrong("-1");
  EXPECT_TRUE(says(wrong("1--3"), "negative")) << wrong("1--3");
  EXPECT_TRUE(says(wrong("1,,2"), "missing")) << wrong("1,,2");
  EXPECT_TRUE(says(wrong("1-"), "missing")) << wrong("1-");
  EXPECT_TRUE(says(wrong("all"), "not a number")) << wrong("all");
  EXPECT_TRUE(says(wrong("1 2"), "not a number")) << wrong("1 2");
  EXPECT_TRUE(says(wrong("0-4294967295"), "larger than 8191")) << wrong("0-4294967295");
  EXPECT_TRUE(says(wrong("99999999999999999999"), "larger")) << wrong("99999999999999999999");
}

TEST(number_list, is_written_as_it_is_read) {
  for (const char* text : {"0", "0-1", "0-3,8", "1,3,5-7", "8191"})
    EXPECT_EQ(number_list_text(*parse_number_list(text)), text);
  EXPECT_EQ(number_list_text({}), "");
}

TEST(numa, reads_the_nodes_that_are_online) {
  const tests::MadeHost host;
  host.write("/sys/devices/system/node/online", "0-1,4\n");
  host.write("/sys/devices/system/node/has_memory", "0,4\n");
  host.write("/sys/devices/system/node/node0/cpulist", "0-3\n");
  host.write("/sys/devices/system/node/node1/cpulist", "4-7\n");
  host.write("/sys/devices/system/node/node4/cpulist", "\n");
  const auto nodes = numa_nodes(host.root());
  ASSERT_TRUE(nodes) << nodes.error().what;
  ASSERT_EQ(nodes->size(), 3U);
  EXPECT_EQ((*nodes)[1], (NumaNode{.number = 1, .cpus = {4, 5, 6, 7}, .has_memory = false}));
  EXPECT_EQ((*nodes)[2], (NumaNode{.number = 4, .cpus = {}, .has_memory = true}));
}

TEST(numa, has_none_without_the_folder_and_an_error_for_a_broken_one) {
  const tests::MadeHost host;
  EXPECT_TRUE(numa_nodes(host.root())->empty());
  host.write("/sys/devices/system/node/online", "0\n");
  host.write("/sys/devices/system/node/has_memory", "0\n");
  EXPECT_FALSE(numa_nodes(host.root()));
  host.write("/sys/devices/system/node/node0/cpulist", "3-1\n");
  const auto broken = numa_nodes(host.root());
  ASSERT_FALSE(broken);
  EXPECT_TRUE(says(broken.error().what, "node0/cpulist")) << broken.error().what;
}

}  // namespace
}  // namespace corral::host

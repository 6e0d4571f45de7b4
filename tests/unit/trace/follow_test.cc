// SPDX-License-Identifier: Apache-2.0
#include "trace/follow.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "trace_bytes.h"

namespace corral::trace {
namespace {

class Follow : public testing::Test {
 protected:
  Follow() {
    std::string pattern = testing::TempDir() + "followXXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  ~Follow() override { std::filesystem::remove_all(folder_); }

  void append(std::string_view text, const std::string& name = "1.trace") {
    std::ofstream(folder_ + "/" + name, std::ios::app) << text;
  }

  std::string folder_;
  TraceBytes bytes_;
};

TEST_F(Follow, each_event_comes_once_and_cuinit_stays) {
  FolderTail tail(folder_);
  EXPECT_TRUE(tail.look().empty());
  bytes_.init({"LOCAL_RANK=1"});
  append(bytes_.bytes);
  EXPECT_TRUE(tail.look().empty()) << "a context is what is told";
  const std::size_t before = bytes_.bytes.size();
  bytes_.context(wire::kContextMade, device_id(0, 0xAA), 1);
  append(bytes_.bytes.substr(before));
  const auto found = tail.look();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].pid, 4711U);
  ASSERT_EQ(found[0].contexts.size(), 1U);
  ASSERT_EQ(found[0].inits.size(), 1U);
  EXPECT_EQ(found[0].inits[0].variables.at("LOCAL_RANK"), "1");
  EXPECT_TRUE(tail.look().empty());
}

TEST_F(Follow, a_record_that_is_half_written_comes_when_it_is_whole) {
  FolderTail tail(folder_);
  bytes_.context(wire::kContextMade, device_id(0, 0xAA), 1);
  const std::size_t half = bytes_.bytes.size() - 20;
  append(bytes_.bytes.substr(0, 30));
  EXPECT_TRUE(tail.look().empty()) << "not even the header";
  append(bytes_.bytes.substr(30, half - 30));
  EXPECT_TRUE(tail.look().empty());
  append(bytes_.bytes.substr(half));
  EXPECT_EQ(tail.look().size(), 1U);
}

TEST_F(Follow, what_is_no_trace_is_left_alone) {
  FolderTail tail(folder_);
  append("no trace at all, and longer than a header of a trace, which has some seventy bytes");
  ASSERT_EQ(::mkfifo((folder_ + "/2.trace").c_str(), 0600), 0);
  ASSERT_EQ(::symlink("/dev/zero", (folder_ + "/3.trace").c_str()), 0);
  bytes_.context(wire::kContextMade, device_id(0, 0xAA), 1);
  append(bytes_.bytes, "4.trace");
  append(bytes_.bytes, "5.other");
  EXPECT_EQ(tail.look().size(), 1U);
  append(bytes_.bytes);
  EXPECT_TRUE(tail.look().empty());
}

TEST_F(Follow, what_comes_before_damage_is_told_and_nothing_after_it) {
  FolderTail tail(folder_);
  bytes_.context(wire::kContextMade, device_id(0, 0xAA), 1);
  const std::string record = bytes_.bytes.substr(TraceBytes().bytes.size());
  append(bytes_.bytes + std::string(64, 'x'));
  EXPECT_EQ(tail.look().size(), 1U);
  append(record);
  EXPECT_TRUE(tail.look().empty());
}

TEST_F(Follow, a_large_file_comes_in_pieces_and_whole) {
  FolderTail tail(folder_);
  constexpr std::size_t kEvents = 40000;
  for (std::size_t i = 0; i < kEvents; ++i)
    bytes_.context(wire::kContextMade, device_id(0, 0xAA), i + 1);
  append(bytes_.bytes);
  ASSERT_GT(bytes_.bytes.size(), 4U << 20);
  std::size_t seen = 0;
  std::size_t looks = 0;
  for (auto found = tail.look(); !found.empty(); found = tail.look(), ++looks)
    seen += found[0].contexts.size();
  EXPECT_EQ(seen, kEvents);
  EXPECT_GT(looks, 4U);
}

}  // namespace
}  // namespace corral::trace

// SPDX-License-Identifier: Apache-2.0
// Records of daemons: what is believed, and what is not.
#include "mps/daemon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "host/boot.h"

namespace corral::mps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kGpu = "GPU-16d67c1f-4f5f-1ce1-59e7-2816617f8111";

Record a_record() {
  return {.boot_id = "0b1e2f3a", .gpu = kGpu, .pid = 4711, .start_ticks = 99, .enforced = "cgroup"};
}

class MpsRecord : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "corral-mps-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    base_ = name;
    folder_ = folder_of(base_, kGpu);
    ASSERT_EQ(::mkdir(folder_.path.c_str(), 0755), 0);
  }
  void TearDown() override { std::filesystem::remove_all(base_); }
  void write(std::string_view text) {
    ASSERT_TRUE(write_file(folder_.record(), text));
    ASSERT_EQ(::chmod(folder_.record().c_str(), 0644), 0);
  }

  std::string base_;
  Folder folder_;
};

TEST(mps_record, comes_back_as_it_was_written) {
  EXPECT_EQ(*parse_record(record_text(a_record())), a_record());
}

TEST(mps_record, that_was_cut_or_made_up_is_none) {
  const std::string text = record_text(a_record());
  for (std::size_t length = 0; length + 2 < text.size(); ++length)
    EXPECT_FALSE(parse_record(std::string_view(text).substr(0, length))) << length;
  for (const char* bad :
       {"[]", "{}", "null", R"({"schema":2,"boot_id":"a","gpu":"GPU-1","pid":1,"enforced":"x"})",
        R"({"schema":1,"boot_id":"a","gpu":"GPU-../../x","pid":1,"enforced":"x"})",
        R"({"schema":1,"boot_id":"a","gpu":"GPU-1","pid":0,"enforced":"x"})",
        R"({"schema":1,"boot_id":"a","gpu":"GPU-1","pid":-1,"enforced":"x"})",
        R"({"schema":1,"boot_id":"a","gpu":"GPU-1","pid":99999999999,"enforced":"x"})"})
    EXPECT_FALSE(parse_record(bad)) << bad;
}

TEST_F(MpsRecord, of_no_daemon_is_nothing) {
  const auto found = look(folder_);
  ASSERT_TRUE(found);
  EXPECT_FALSE(*found);
  EXPECT_FALSE(daemon_behind(folder_.pipe()));
}

TEST_F(MpsRecord, of_a_process_that_is_gone_is_a_dead_daemon) {
  write(record_text(a_record()));
  const auto found = look(folder_);
  ASSERT_TRUE(found && *found);
  EXPECT_FALSE((*found)->alive);
  EXPECT_FALSE(daemon_behind(folder_.pipe()));
}

TEST_F(MpsRecord, of_a_process_that_is_no_mps_daemon_is_a_dead_one) {
  Record record = a_record();
  record.boot_id = *host::boot_id(host::Root());
  record.pid = ::getpid();  // alive, and another program; so it is with any start time
  write(record_text(record));
  const auto found = look(folder_);
  ASSERT_TRUE(found && *found);
  EXPECT_FALSE((*found)->alive);
}

TEST_F(MpsRecord, that_others_could_have_written_is_not_believed) {
  write(record_text(a_record()));
  ASSERT_EQ(::chmod(folder_.record().c_str(), 0666), 0);
  EXPECT_THAT(look(folder_).error().what, HasSubstr("somebody else could have written it"));
  ASSERT_EQ(::chmod(folder_.record().c_str(), 0644), 0);
  ASSERT_EQ(::chmod(folder_.path.c_str(), 0777), 0);
  EXPECT_THAT(look(folder_).error().what, HasSubstr("somebody else could have written it"));
}

TEST_F(MpsRecord, behind_a_link_is_not_followed) {
  write(record_text(a_record()));
  std::filesystem::rename(folder_.record(), folder_.path + "/other");
  std::filesystem::create_symlink("other", folder_.record());
  EXPECT_FALSE(look(folder_));
}

TEST_F(MpsRecord, that_is_not_one_says_what_to_do) {
  write("{");
  const auto found = look(folder_);
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().what, HasSubstr("not a JSON object"));
  EXPECT_THAT(found.error().hint, HasSubstr("rm -r "));
}

TEST(mps_bases, root_serves_everybody_and_a_user_itself) {
  const gpu::Machine real;
  EXPECT_THAT(base_folders(real, 0, "/run/user/0"), ElementsAre("/run/corral-mps"));
  EXPECT_THAT(base_folders(real, 1000, "/run/user/1000"),
              ElementsAre("/run/user/1000/corral-mps", "/tmp/corral-mps-1000", "/run/corral-mps"));
  EXPECT_THAT(base_folders(real, 1000, nullptr),
              ElementsAre("/tmp/corral-mps-1000", "/run/corral-mps"));
  EXPECT_THAT(base_folders(real, 1000, "relative"),
              ElementsAre("/tmp/corral-mps-1000", "/run/corral-mps"));
  const gpu::Machine simulated{.hardware = host::Root("/sim"), .simulated = true};
  EXPECT_THAT(base_folders(simulated, 0, nullptr), ElementsAre("/sim/run/mps"));
}

TEST(mps_processes, a_daemon_is_told_from_somebody_who_asks_one) {
  EXPECT_TRUE(is_control_daemon({"nvidia-cuda-mps-control", "-d"}));
  EXPECT_TRUE(is_control_daemon({"/usr/bin/nvidia-cuda-mps-control", "-f"}));
  EXPECT_TRUE(is_control_daemon({"/usr/bin/nvidia-cuda-mps-control", "-M", "--daemon"}));
  EXPECT_TRUE(is_control_daemon({"/usr/bin/python3", "/x/nvidia-cuda-mps-control", "-d"}));
  EXPECT_FALSE(is_control_daemon({"nvidia-cuda-mps-control"}));
  EXPECT_FALSE(is_control_daemon({"nvidia-cuda-mps-control", "quit"}));
  EXPECT_FALSE(is_control_daemon({"nvidia-cuda-mps-server"}));
  EXPECT_FALSE(is_control_daemon({"grep", "-d", "nvidia-cuda-mps-control"}));
  EXPECT_FALSE(is_control_daemon({}));
}

}  // namespace
}  // namespace corral::mps

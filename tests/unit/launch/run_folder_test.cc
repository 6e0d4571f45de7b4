// SPDX-License-Identifier: Apache-2.0
#include "launch/run_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "host/proc.h"

namespace corral::launch {
namespace {

namespace fs = std::filesystem;

class RunFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/corral-test-XXXXXX";
    top_ = ::mkdtemp(name);
  }
  void TearDown() override { fs::remove_all(top_); }

  std::string base() const { return top_ + "/base"; }
  Result<RunFolder> make() const {
    return make_run_folder({base()}, "/installed/shim", "/real/libcuda.so.1");
  }

  std::string top_;
};

using run_folder = RunFolderTest;

TEST_F(run_folder, holds_the_three_links_and_goes_away_with_its_owner) {
  std::string path;
  {
    const auto folder = make();
    ASSERT_TRUE(folder) << folder.error().what;
    path = folder->path();
    EXPECT_EQ(fs::read_symlink(path + "/lib/libcuda.so.1"), "/installed/shim");
    EXPECT_EQ(fs::read_symlink(path + "/lib/libcuda.so"), "libcuda.so.1");
    EXPECT_EQ(fs::read_symlink(path + "/lib/libcorral-driver.so"), "/real/libcuda.so.1");
    EXPECT_TRUE(fs::is_directory(folder->trace_folder()));
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(run_folder, the_next_start_removes_what_a_killed_one_left) {
  const std::string dead = base() + "/run-999999999-1";
  fs::create_directories(dead + "/trace");
  ASSERT_EQ(::chmod(base().c_str(), 0700), 0);
  const auto folder = make();
  ASSERT_TRUE(folder) << folder.error().what;
  EXPECT_FALSE(fs::exists(dead));
}

TEST_F(run_folder, a_job_that_outlives_corral_keeps_its_folder) {
  const auto self = host::read_stat(host::Root(), ::getpid());
  ASSERT_TRUE(self);
  const std::string dead = base() + "/run-999999999-1";
  fs::create_directories(dead + "/trace");
  ASSERT_EQ(::chmod(base().c_str(), 0700), 0);
  ASSERT_TRUE(write_file(dead + "/trace/" + std::to_string(self->pid) + "-" +
                             std::to_string(self->start_ticks) + ".trace",
                         ""));
  ASSERT_TRUE(make());
  EXPECT_TRUE(fs::exists(dead));
}

TEST_F(run_folder, a_base_that_others_can_write_to_is_refused) {
  ASSERT_EQ(::mkdir(base().c_str(), 0777), 0);
  ASSERT_EQ(::chmod(base().c_str(), 0777), 0);
  const auto folder = make();
  ASSERT_FALSE(folder);
  EXPECT_NE(folder.error().what.find(base()), std::string::npos) << folder.error().what;
}

TEST_F(run_folder, a_link_in_place_of_the_base_is_refused) {
  ASSERT_EQ(::mkdir((top_ + "/elsewhere").c_str(), 0700), 0);
  ASSERT_EQ(::symlink((top_ + "/elsewhere").c_str(), base().c_str()), 0);
  EXPECT_FALSE(make());
}

TEST_F(run_folder, takes_the_next_base_when_the_first_does_not_work) {
  ASSERT_TRUE(write_file(top_ + "/file", ""));
  const auto folder = make_run_folder({top_ + "/file/below", base()}, "/s", "/d");
  ASSERT_TRUE(folder) << folder.error().what;
  EXPECT_TRUE(folder->path().starts_with(base()));
}

TEST(run_folder_bases, a_relative_runtime_folder_is_not_used) {
  EXPECT_EQ(run_folder_bases(1000, "relative", nullptr),
            std::vector<std::string>{"/tmp/corral-1000"});
  EXPECT_EQ(run_folder_bases(0, nullptr, "/var/tmp"),
            (std::vector<std::string>{"/run/corral", "/var/tmp/corral-0", "/tmp/corral-0"}));
}

}  // namespace
}  // namespace corral::launch

// SPDX-License-Identifier: Apache-2.0
#include "launch/run_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "base/fd.h"
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

  // A folder of a process that is not here, with `lock` in its lock file.
  std::string dead_folder(std::string_view lock) const {
    const std::string dead = base() + "/run-999999999-1";
    fs::create_directories(dead + "/trace");
    EXPECT_EQ(::chmod(base().c_str(), 0700), 0);
    EXPECT_TRUE(write_file(dead + "/lock", lock));
    return dead;
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

TEST_F(run_folder, a_locked_one_stays_though_its_owner_cannot_be_seen) {
  const std::string dead = dead_folder("1\n");
  for (const char* part : {"/trace", ""})
    fs::last_write_time(dead + part, fs::file_time_type::clock::now() - std::chrono::hours(48));
  Fd lock(::open((dead + "/lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  ASSERT_TRUE(make());
  EXPECT_TRUE(fs::exists(dead));
  lock.close();
  ASSERT_TRUE(make());
  EXPECT_FALSE(fs::exists(dead));
}

TEST_F(run_folder, is_locked_as_long_as_its_owner_has_it) {
  const auto folder = make();
  ASSERT_TRUE(folder) << folder.error().what;
  const Fd lock(::open((folder->path() + "/lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(lock);
  EXPECT_NE(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
}

TEST_F(run_folder, of_another_pid_namespace_stays_for_a_day) {
  const std::string dead = dead_folder("1\n");
  const std::string trace = dead + "/trace/7-7.trace";
  ASSERT_TRUE(write_file(trace, ""));
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(48);
  ASSERT_TRUE(make());
  EXPECT_TRUE(fs::exists(dead));
  for (const char* part : {"/trace", ""}) fs::last_write_time(dead + part, old);
  ASSERT_TRUE(make());
  EXPECT_TRUE(fs::exists(dead)) << "a trace was written today";
  fs::last_write_time(trace, old);
  ASSERT_TRUE(make());
  EXPECT_FALSE(fs::exists(dead));
}

TEST_F(run_folder, of_this_pid_namespace_goes_at_once) {
  struct stat space{};
  ASSERT_EQ(::stat("/proc/self/ns/pid", &space), 0);
  const std::string dead = dead_folder(std::to_string(space.st_ino) + "\n");
  ASSERT_TRUE(make());
  EXPECT_FALSE(fs::exists(dead));
}

TEST_F(run_folder, one_that_is_being_made_is_left_alone_for_a_day) {
  const std::string unfinished = base() + "/making-999999999-1";
  fs::create_directories(unfinished);
  ASSERT_EQ(::chmod(base().c_str(), 0700), 0);
  ASSERT_TRUE(make());
  EXPECT_TRUE(fs::exists(unfinished));
  fs::last_write_time(unfinished, fs::file_time_type::clock::now() - std::chrono::hours(48));
  ASSERT_TRUE(make());
  EXPECT_FALSE(fs::exists(unfinished));
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

TEST(run_folder_bases, one_that_a_library_path_cannot_hold_is_not_used) {
  for (const char* folder : {"/a:b", "/a;b", "/a$b"})
    EXPECT_EQ(run_folder_bases(1000, folder, folder), std::vector<std::string>{"/tmp/corral-1000"})
        << folder;
}

}  // namespace
}  // namespace corral::launch

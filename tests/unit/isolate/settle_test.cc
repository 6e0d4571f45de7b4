// SPDX-License-Identifier: Apache-2.0
// Groups of cgroup v2 on the kernel at hand: delegated, settled in, put back. Whatever controller
// v2 has here stands for those of the limits, which v1 may hold.
#include "isolate/settle.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/fd.h"
#include "base/file.h"
#include "base/text.h"
#include "host/cgroup.h"
#include "in_child.h"
#include "isolate/limit_places.h"
#include "must_work.h"

namespace corral::isolate {
namespace {

std::vector<std::string> words_of(const std::string& path) {
  std::vector<std::string> words;
  if (const auto text = read_file(path))
    for (const std::string_view word : split(trim(*text), ' '))
      if (!word.empty()) words.emplace_back(word);
  return words;
}

// Our own v2 group's folder, where root may make groups that have a controller.
std::string v2_root() {
  const auto entries = host::read_cgroup(host::Root());
  const auto mounts = host::read_mountinfo(host::Root());
  if (!entries || !mounts || ::geteuid() != 0) return {};
  const auto place = host::locate_v2(*entries, *mounts);
  if (!place || ::access(place->folder.c_str(), W_OK) != 0) return {};
  return words_of(place->folder + "/cgroup.controllers").empty() ? "" : place->folder;
}

// A group for each test, whose controllers were switched on above it.
class Settling : public testing::Test {
 protected:
  void SetUp() override {
    top_ = v2_root();
    CORRAL_NEEDS("cgroup2-controller", !top_.empty(),
                 "no v2 group with controllers that we may make groups in");
    // Tests run beside each other, and each switches the controller off again at its end.
    auto lock = open_file(top_, O_RDONLY | O_DIRECTORY);
    ASSERT_TRUE(lock) << lock.error().what;
    lock_ = *std::move(lock);
    ASSERT_EQ(::flock(lock_.get(), LOCK_EX), 0);
    controller_ = words_of(top_ + "/cgroup.controllers").front();
    const auto on = pass_on(top_, {controller_});
    ASSERT_TRUE(on) << on.error().what;
    was_off_ = *on;
    group_ = top_ + "/test-settle-" + std::to_string(::getpid());
    ASSERT_EQ(::mkdir(group_.c_str(), 0755), 0);
  }
  void TearDown() override {
    if (group_.empty()) return;
    EXPECT_EQ(::rmdir(group_.c_str()), 0) << group_;
    for (const std::string& controller : was_off_)
      (void)write_existing(top_ + "/cgroup.subtree_control", "-" + controller);
  }
  bool enter_group() const { return write_existing(group_ + "/cgroup.procs", "0").has_value(); }
  bool passes_on() const {
    return words_of(group_ + "/cgroup.subtree_control") == std::vector<std::string>{controller_};
  }
  // Makes the group one that was delegated to `uid`, and becomes that user in it.
  bool enter_as(uid_t uid) const {
    for (const char* file : {"", "/cgroup.procs", "/cgroup.threads", "/cgroup.subtree_control"})
      if (::chown((group_ + file).c_str(), uid, uid) != 0) return false;
    return enter_group() && ::setresgid(uid, uid, uid) == 0 && ::setresuid(uid, uid, uid) == 0;
  }
  V2Places places(bool as_root) const { return find_v2_places(host::Root(), Manager{}, as_root); }

  Fd lock_;
  std::string top_;
  std::string group_;
  std::string controller_;
  std::vector<std::string> was_off_;
};

constexpr uid_t kNobody = 65534;

TEST_F(Settling, alone_in_a_group_we_go_below_and_come_back) {
  EXPECT_EQ(
      in_child([&] {
        if (!enter_group()) return 1;
        const V2Places found = places(true);
        if (found.places.empty() || found.places[0].folder != group_) return 2;
        if (found.places[0].step != FirstStep::settle) return 3;
        {
          auto settled = Settled::create(group_, {controller_});
          if (!settled) return 4;
          if (!passes_on()) return 5;
          if (!read_file(group_ + "/cgroup.procs")->empty()) return 6;
          const auto job = CgroupFolder::create(group_);
          if (!job) return 7;
          // It has the controller's files.
          const auto names = list_folder(job->path());
          const bool has = std::ranges::any_of(
              *names, [&](const std::string& name) { return name.starts_with(controller_ + "."); });
          if (!has) return 8;
        }
        if (passes_on()) return 9;
        return *read_file(group_ + "/cgroup.procs") == std::to_string(::getpid()) + "\n" ? 0 : 10;
      }),
      0);
  EXPECT_EQ(std::filesystem::exists(group_ + "/cgroup.procs"), true);
}

TEST_F(Settling, a_user_can_in_a_group_that_was_given_to_him) {
  EXPECT_EQ(in_child([&] {
              if (!enter_as(kNobody)) return 1;
              const V2Places found = places(false);
              if (found.places.empty() || found.places[0].step != FirstStep::settle) return 2;
              const auto settled = Settled::create(group_, {controller_});
              if (!settled) return 3;
              const auto job = CgroupFolder::create(group_);
              if (!job) return 4;
              const auto child = job->fork_into();
              if (!child) return 5;
              if (*child == 0) ::_exit(job->join() && job->holds_caller() ? 0 : 1);
              int status = 0;
              ::waitpid(*child, &status, 0);
              return status == 0 ? 0 : 6;
            }),
            0);
}

TEST_F(Settling, a_group_without_its_control_file_is_not_his) {
  EXPECT_EQ(in_child([&] {
              if (!enter_as(kNobody)) return 1;
              return places(false).places.empty() ? 2 : 0;
            }),
            0);
  EXPECT_EQ(::chown((group_ + "/cgroup.subtree_control").c_str(), 0, 0), 0);
  EXPECT_EQ(in_child([&] {
              if (!enter_group() || ::setresgid(kNobody, kNobody, kNobody) != 0 ||
                  ::setresuid(kNobody, kNobody, kNobody) != 0)
                return 1;
              const V2Places found = places(false);
              const bool named = std::ranges::any_of(found.troubles, [](const std::string& text) {
                return text.find("subtree_control") != text.npos;
              });
              return found.places.empty() && named ? 0 : 2;
            }),
            0);
}

TEST_F(Settling, a_stranger_in_the_group_is_left_there_and_nothing_is_changed) {
  const pid_t stranger = ::fork();
  if (stranger == 0) {
    if (enter_group()) ::pause();
    ::_exit(1);
  }
  while (read_file(group_ + "/cgroup.procs")->empty()) ::usleep(1000);
  EXPECT_EQ(in_child([&] {
              if (!enter_group()) return 1;
              for (const V2Place& place : places(true).places)
                if (place.folder == group_) return 2;
              const auto settled = Settled::create(group_, {controller_});
              if (settled) return 3;
              if (settled.error().what.find("process ") == std::string::npos) return 4;
              if (passes_on()) return 5;
              // Both of us.
              return split(trim(*read_file(group_ + "/cgroup.procs")), '\n').size() == 2 ? 0 : 6;
            }),
            0);
  EXPECT_EQ(*read_file(group_ + "/cgroup.procs"), std::to_string(stranger) + "\n");
  ::kill(stranger, SIGKILL);
  ::waitpid(stranger, nullptr, 0);
}

TEST_F(Settling, what_was_started_below_us_goes_along) {
  EXPECT_EQ(
      in_child([&] {
        if (!enter_group()) return 1;
        const pid_t child = ::fork();
        if (child == 0) {
          ::pause();
          ::_exit(0);
        }
        int result = 0;
        {
          const auto settled = Settled::create(group_, {controller_});
          if (!settled)
            result = 2;
          else if (split(trim(*read_file(settled->own_group() + "/cgroup.procs")), '\n').size() !=
                   2)
            result = 3;
        }
        if (result == 0 && split(trim(*read_file(group_ + "/cgroup.procs")), '\n').size() != 2)
          result = 4;
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, 0);
        return result;
      }),
      0);
}

TEST_F(Settling, a_controller_that_is_not_there_changes_nothing) {
  EXPECT_EQ(
      in_child([&] {
        if (!enter_group()) return 1;
        const auto settled = Settled::create(group_, {controller_, "none"});
        if (settled) return 2;
        if (settled.error().what.find("does not pass the none controller on") == std::string::npos)
          return 3;
        if (passes_on()) return 4;
        return *read_file(group_ + "/cgroup.procs") == std::to_string(::getpid()) + "\n" ? 0 : 5;
      }),
      0);
}

TEST_F(Settling, limits_of_a_job_that_goes_on_are_left_in_place) {
  EXPECT_EQ(in_child([&] {
              if (!enter_group()) return 1;
              std::string job;
              {
                const auto settled = Settled::create(group_, {controller_});
                if (!settled) return 2;
                job = group_ + "/corral-another";
                if (::mkdir(job.c_str(), 0755) != 0) return 3;
              }
              if (!passes_on()) return 4;
              return ::rmdir(job.c_str()) == 0 ? 0 : 5;
            }),
            0);
  // As after a kill -9: the next start in a group below takes it away.
  EXPECT_GE(remove_stale_cgroups(group_), 1U);
}

TEST_F(Settling, a_group_above_is_found_once_it_passes_on) {
  ASSERT_TRUE(pass_on(group_, {controller_}));
  const std::string shell = group_ + "/shell";
  ASSERT_EQ(::mkdir(shell.c_str(), 0755), 0);
  EXPECT_EQ(in_child([&] {
              if (!write_existing(shell + "/cgroup.procs", "0")) return 1;
              for (const V2Place& place : places(true).places)
                if (place.folder == group_) {
                  const auto job = CgroupFolder::create(group_);
                  if (!job || !job->join()) return 2;
                  const bool there = job->holds_caller();
                  (void)write_existing(shell + "/cgroup.procs", "0");
                  return there ? 0 : 3;
                }
              return 4;
            }),
            0);
  EXPECT_EQ(::rmdir(shell.c_str()), 0);
}

}  // namespace
}  // namespace corral::isolate

// SPDX-License-Identifier: Apache-2.0
// A job's own group: made, entered, emptied, removed; what dead runs left goes away.
#include "isolate/cgroup_folder.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <optional>

#include "base/file.h"
#include "host/cgroup.h"
#include "in_child.h"
#include "isolate/seccomp.h"
#include "must_work.h"

namespace corral::isolate {
namespace {

std::string folder_of(bool v1) {
  const auto entries = host::read_cgroup(host::Root());
  const auto mounts = host::read_mountinfo(host::Root());
  if (!entries || !mounts || ::geteuid() != 0) return {};
  const auto place =
      v1 ? host::locate_v1(*entries, *mounts, "devices") : host::locate_v2(*entries, *mounts);
  return place && ::access(place->folder.c_str(), W_OK) == 0 ? place->folder : std::string();
}

// "corral-<pidns>-", as groups of this pid namespace begin.
std::string own_prefix() {
  struct stat status{};
  EXPECT_EQ(::stat("/proc/self/ns/pid", &status), 0);
  return "corral-" + std::to_string(status.st_ino) + "-";
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

class Group : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    parent_ = folder_of(GetParam());
    CORRAL_NEEDS(GetParam() ? "cgroup1" : "cgroup2", !parent_.empty(),
                 "no cgroup that we may make groups in");
    // A parent of our own: other starts remove stale groups where they find them.
    parent_ += "/test-corral-" + std::to_string(::getpid());
    ASSERT_EQ(::mkdir(parent_.c_str(), 0755), 0);
  }
  void TearDown() override {
    if (!parent_.empty()) ::rmdir(parent_.c_str());
  }
  std::string parent_;
};

INSTANTIATE_TEST_SUITE_P(cgroup, Group, testing::Bool(),
                         [](const auto& parameter) { return parameter.param ? "v1" : "v2"; });

TEST_P(Group, lives_as_long_as_its_object) {
  std::string path;
  {
    const auto group = CgroupFolder::create(parent_);
    ASSERT_TRUE(group) << group.error().what;
    path = group->path();
    EXPECT_TRUE(exists(path));
    EXPECT_TRUE(group->members().empty());
  }
  EXPECT_FALSE(exists(path));
}

TEST_P(Group, several_of_one_process_do_not_collide) {
  const auto one = CgroupFolder::create(parent_);
  const auto two = CgroupFolder::create(parent_);
  ASSERT_TRUE(one && two);
  EXPECT_NE(one->path(), two->path());
}

TEST_P(Group, a_child_joins_and_is_a_member) {
  auto group = CgroupFolder::create(parent_);
  ASSERT_TRUE(group);
  const int outcome = in_child([&] {
    if (!group->join()) return 1;
    const std::vector<pid_t> members = group->members();
    return members == std::vector<pid_t>{::getpid()} ? 0 : 2;
  });
  EXPECT_EQ(outcome, 0);
  const auto left = group->remove();
  ASSERT_TRUE(left) << left.error().what;
  EXPECT_TRUE(left->empty());
}

TEST_P(Group, a_child_that_dies_early_leaves_the_group_to_its_maker) {
  auto group = CgroupFolder::create(parent_);
  ASSERT_TRUE(group);
  const std::string path = group->path();
  EXPECT_EQ(in_child([&] {
              const CgroupFolder copy = *std::move(group);
              return copy.path().empty() ? 1 : 0;
            }),
            0);
  EXPECT_TRUE(exists(path));
}

TEST_P(Group, processes_that_are_left_are_named_and_the_group_stays) {
  auto group = CgroupFolder::create(parent_);
  ASSERT_TRUE(group);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const char byte = group->join() ? 'y' : 'n';
    if (::write(ready[1], &byte, 1) == 1) ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const auto left = group->remove();
  ASSERT_TRUE(left);
  EXPECT_EQ(*left, std::vector<pid_t>{pid});
  EXPECT_TRUE(exists(group->path()));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  const auto after = group->remove();
  ASSERT_TRUE(after) << after.error().what;
  EXPECT_TRUE(after->empty());
}

TEST_P(Group, groups_that_the_job_made_go_with_it) {
  auto group = CgroupFolder::create(parent_);
  ASSERT_TRUE(group);
  const std::string path = group->path();
  ASSERT_EQ(::mkdir((path + "/inner").c_str(), 0755), 0);
  ASSERT_TRUE(group->remove());
  EXPECT_FALSE(exists(path));
}

TEST_P(Group, stale_groups_of_dead_processes_are_removed_and_living_ones_kept) {
  // Above the largest pid there can be.
  const std::string dead = parent_ + "/" + own_prefix() + "4194304-1";
  const std::string foreign = parent_ + "/corral-x-1";
  ASSERT_EQ(::mkdir(dead.c_str(), 0755), 0);
  ASSERT_EQ(::mkdir(foreign.c_str(), 0755), 0);
  const auto living = CgroupFolder::create(parent_);
  ASSERT_TRUE(living);
  EXPECT_GE(remove_stale_cgroups(parent_), 1U);
  EXPECT_FALSE(exists(dead));
  EXPECT_TRUE(exists(foreign));
  EXPECT_TRUE(exists(living->path()));
  EXPECT_EQ(::rmdir(foreign.c_str()), 0);
}

TEST_P(Group, a_maker_that_nobody_waits_for_does_not_keep_a_group) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    std::string path;
    // Killed with its group, as by kill -9.
    if (const auto group = CgroupFolder::create(parent_)) {
      path = group->path();
      (void)!::write(ends[1], path.data(), path.size());
      ::kill(::getpid(), SIGKILL);
    }
    ::_exit(1);
  }
  ::close(ends[1]);
  char path[512] = {};
  ASSERT_GT(::read(ends[0], path, sizeof path - 1), 0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(exists(path));
  EXPECT_EQ(remove_stale_cgroups(parent_), 1U);
  EXPECT_FALSE(exists(path));
  ::waitpid(pid, nullptr, 0);
  ::close(ends[0]);
}

TEST_P(Group, a_job_that_outlives_its_corral_keeps_the_groups_that_it_made) {
  const std::string stale = parent_ + "/" + own_prefix() + "4194304-1";
  const std::string inner = stale + "/inner";
  ASSERT_EQ(::mkdir(stale.c_str(), 0755), 0);
  ASSERT_EQ(::mkdir(inner.c_str(), 0755), 0);
  EXPECT_EQ(in_child([&] {
              if (!write_existing(stale + "/cgroup.procs", "0")) return 1;
              if (remove_stale_cgroups(parent_) != 0) return 2;
              return exists(inner) ? 0 : 3;
            }),
            0);
  EXPECT_EQ(remove_stale_cgroups(parent_), 1U);
  EXPECT_FALSE(exists(stale));
}

TEST_P(Group, a_pid_that_was_used_again_does_not_keep_a_group) {
  // Our own pid with another start time.
  const std::string stale = parent_ + "/" + own_prefix() + std::to_string(::getpid()) + "-1";
  ASSERT_EQ(::mkdir(stale.c_str(), 0755), 0);
  remove_stale_cgroups(parent_);
  EXPECT_FALSE(exists(stale));
}

// Runs `body` as process 1 of a new pid namespace, with or without a /proc of that namespace.
int in_pid_namespace(bool own_proc, const std::function<int()>& body) {
  return in_child([&] {
    if (::unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) return 100;
    return in_child([&] {
      if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return 101;
      if (own_proc && ::mount("proc", "/proc", "proc", 0, nullptr) != 0) return 102;
      return body();
    });
  });
}

TEST_P(Group, a_start_in_another_pid_namespace_leaves_a_group_that_is_not_entered_yet) {
  const auto living = CgroupFolder::create(parent_);
  ASSERT_TRUE(living);
  for (const bool own_proc : {true, false}) {
    EXPECT_EQ(in_pid_namespace(own_proc, [&] { return int(remove_stale_cgroups(parent_)); }), 0);
    EXPECT_TRUE(exists(living->path())) << own_proc;
    // And the other way round.
    EXPECT_EQ(in_pid_namespace(own_proc,
                               [&] {
                                 const auto inner = CgroupFolder::create(parent_);
                                 if (!inner) return 1;
                                 if (remove_stale_cgroups(parent_) != 0) return 2;
                                 return exists(inner->path()) ? 0 : 3;
                               }),
              0);
  }
  const std::string foreign = parent_ + "/corral-1-4194304-1";
  ASSERT_EQ(::mkdir(foreign.c_str(), 0755), 0);
  EXPECT_EQ(remove_stale_cgroups(parent_), 0U);
  EXPECT_TRUE(exists(foreign));
  EXPECT_EQ(::rmdir(foreign.c_str()), 0);
}

// Forks into the group; the child's exit status says whether it was there before it joined.
int fork_and_look(const CgroupFolder& group) {
  const auto pid = group.fork_into();
  if (!pid) return -1;
  if (*pid == 0) {
    const bool before = !group.members().empty();
    if (!group.join()) ::_exit(10);
    const std::vector<pid_t> members = group.members();
    ::_exit(members == std::vector<pid_t>{::getpid()} ? (before ? 1 : 2) : 11);
  }
  int status = 0;
  if (::waitpid(*pid, &status, 0) != *pid || !WIFEXITED(status)) return -2;
  // Nobody else of ours is left to be waited for.
  if (::waitpid(-1, nullptr, WNOHANG) != -1 || errno != ECHILD) return -3;
  return WEXITSTATUS(status);
}

TEST(cgroup_folder, a_job_can_start_inside) {
  const std::string parent = folder_of(false);
  CORRAL_NEEDS("cgroup2", !parent.empty(), "no v2 cgroup that we may make groups in");
  const auto group = CgroupFolder::create(parent);
  ASSERT_TRUE(group);
  EXPECT_EQ(fork_and_look(*group), 1);
}

TEST(cgroup_folder, a_job_joins_where_it_cannot_start_inside) {
  const std::string parent = folder_of(false);
  CORRAL_NEEDS("cgroup2", !parent.empty(), "no v2 cgroup that we may make groups in");
  CORRAL_NEEDS("seccomp", filter_available(), "no seccomp filters");
  const auto group = CgroupFolder::create(parent);
  ASSERT_TRUE(group);
  EXPECT_EQ(in_child([&] {
              if (!enter_filter(build_filter({.cgroup_exits = true}))) return 20;  // no clone3
              return fork_and_look(*group);
            }),
            2);
}

TEST(cgroup_folder, a_threaded_parent_gets_a_threaded_child) {
  const std::string parent = folder_of(false);
  CORRAL_NEEDS("cgroup2", !parent.empty(), "no v2 cgroup that we may make groups in");
  const std::string domain = parent + "/corral-test-threaded";
  std::filesystem::create_directory(domain);
  std::filesystem::create_directory(domain + "/inner");
  const auto threaded = write_existing(domain + "/inner/cgroup.type", "threaded");
  if (threaded) {
    const auto group = CgroupFolder::create(domain + "/inner");
    EXPECT_TRUE(group) << group.error().what;
    if (group) {
      EXPECT_EQ(read_file(group->path() + "/cgroup.type").value(), "threaded\n");
    }
    const auto sibling = CgroupFolder::create(domain);  // "domain threaded" by now
    EXPECT_TRUE(sibling) << sibling.error().what;
    if (sibling) {
      EXPECT_EQ(read_file(sibling->path() + "/cgroup.type").value(), "threaded\n");
    }
  }
  ::rmdir((domain + "/inner").c_str());
  ::rmdir(domain.c_str());
  EXPECT_TRUE(threaded) << threaded.error().what;
}

TEST(cgroup_folder, a_parent_that_is_not_there_is_an_error_that_names_it) {
  const auto group = CgroupFolder::create("/sys/fs/cgroup/none/at-all");
  ASSERT_FALSE(group);
  EXPECT_NE(group.error().what.find("/none/at-all"), std::string::npos);
}

}  // namespace
}  // namespace corral::isolate

// SPDX-License-Identifier: Apache-2.0
// Asking for a scope: a busctl of our own stands for the manager, which answers, refuses, hangs,
// dies and forgets.
#include "isolate/systemd.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "host/cgroup.h"
#include "in_child.h"
#include "isolate/settle.h"
#include "must_work.h"

namespace corral::isolate {
namespace {

using std::chrono::milliseconds;

class FakeBusctl : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (std::filesystem::temp_directory_path() / "corral-bus-XXXXXX").string();
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    old_path_ = std::getenv("PATH");
    ::setenv("PATH", (folder_ + ":" + old_path_).c_str(), 1);
  }
  void TearDown() override {
    ::setenv("PATH", old_path_.c_str(), 1);
    std::filesystem::remove_all(folder_);
  }
  void says(const std::string& script) const {
    std::ofstream(folder_ + "/busctl") << "#!/bin/sh\n" << script << "\n";
    ASSERT_EQ(::chmod((folder_ + "/busctl").c_str(), 0755), 0);
  }
  static std::string trouble(milliseconds limit = milliseconds{2000}) {
    const auto entered = enter_scope(
        {.bus = "/b"},
        {.name = "corral-t.scope", .description = "a test", .pid = ::getpid(), .limit = limit});
    return entered ? "entered " + *entered : entered.error().what;
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != text.npos;
  }
  static Plan with(LimitKind kind) {
    Plan plan;
    plan.limits = {{.kind = kind,
                    .numbers = {0},
                    .amount = 64U << 20,
                    .way = LimitWay::cgroup2,
                    .scope = "a systemd scope of its own"}};
    plan.v2_place = V2Place{.step = FirstStep::scope, .controllers = {"cpuset", "memory"}};
    plan.manager.bus = "/b";
    return plan;
  }
  std::string folder_;
  std::string old_path_;
};

TEST_F(FakeBusctl, a_refusal_is_quoted) {
  says("echo 'Call failed: Access denied' >&2; exit 1");
  EXPECT_EQ(trouble(), "make corral-t.scope through /b: Call failed: Access denied");
}

TEST_F(FakeBusctl, a_bus_that_hangs_is_left_behind) {
  says("exec sleep 1000");
  EXPECT_TRUE(has(trouble(milliseconds{100}), "did not answer within")) << trouble(milliseconds{9});
}

TEST_F(FakeBusctl, a_death_is_no_answer) {
  says("kill -9 $$");
  EXPECT_TRUE(has(trouble(), "no answer"));
}

TEST_F(FakeBusctl, an_answer_without_the_move_is_not_taken_for_it) {
  says("echo 'o \"/org/freedesktop/systemd1/job/7\"'");
  EXPECT_TRUE(has(trouble(milliseconds{100}), "did not move this process in time"));
}

TEST_F(FakeBusctl, a_host_without_it_is_told_so) {
  ::setenv("PATH", folder_.c_str(), 1);
  EXPECT_TRUE(has(trouble(), "busctl was not found"));
}

TEST_F(FakeBusctl, limits_that_only_a_group_holds_are_an_error_then) {
  says("echo no >&2; exit 1");
  Plan plan = with(LimitKind::memory);
  const auto taken = take_place(plan);
  ASSERT_FALSE(taken);
  EXPECT_TRUE(has(taken.error().what, "--memory cannot be held here: make corral-"))
      << taken.error().what;
}

TEST_F(FakeBusctl, cpus_go_by_affinity_then_and_a_note_says_so) {
  says("echo no >&2; exit 1");
  Plan plan = with(LimitKind::cpus);
  ASSERT_TRUE(take_place(plan));
  EXPECT_EQ(plan.limits[0].way, LimitWay::task);
  EXPECT_EQ(plan.limits[0].scope, "");
  EXPECT_FALSE(plan.v2_place);
  ASSERT_EQ(plan.notes.size(), 1U);
  EXPECT_TRUE(has(plan.notes[0], "CPUs 0 by affinity, for lack of a group: make corral-"));
}

// A real group in place of the scope, made and entered by the stand-in.
class FakeScope : public FakeBusctl {
 protected:
  void SetUp() override {
    FakeBusctl::SetUp();
    const auto entries = host::read_cgroup(host::Root());
    const auto mounts = host::read_mountinfo(host::Root());
    ASSERT_TRUE(entries && mounts);
    const auto place = host::locate_v2(*entries, *mounts);
    CORRAL_NEEDS("cgroup2", place && ::geteuid() == 0 && ::access(place->folder.c_str(), W_OK) == 0,
                 "no v2 group that we may make groups in");
    top_ = place->folder;
    // The name is the ninth word; the pid comes three after "PIDs".
    says("shift 7; mkdir " + top_ + "/$2\nname=$2\nwhile [ \"$1\" != PIDs ]; do shift; done\n" +
         "echo $4 > " + top_ + "/$name/cgroup.procs && echo 'o \"/org/freedesktop/job/7\"'");
  }
  std::string top_;
};

TEST_F(FakeScope, the_process_is_in_it_when_the_call_returns) {
  const std::string scope = top_ + "/corral-t.scope";
  EXPECT_EQ(in_child([&] {
              if (trouble() != "entered " + scope) return 1;
              return *read_file(scope + "/cgroup.procs") == std::to_string(::getpid()) + "\n" ? 0
                                                                                              : 2;
            }),
            0);
  EXPECT_EQ(::rmdir(scope.c_str()), 0);
}

TEST_F(FakeScope, a_scope_without_the_controller_is_not_settled_in) {
  if (const auto there = read_file(top_ + "/cgroup.controllers"); there && has(*there, "memory"))
    GTEST_SKIP() << "v2 has the memory controller here";
  EXPECT_EQ(in_child([&] {
              Plan plan = with(LimitKind::memory);
              const auto taken = take_place(plan);
              if (taken) return 1;
              return taken.error().what.find("does not pass the memory controller on") !=
                             std::string::npos
                         ? 0
                         : 2;
            }),
            0);
  for (const auto& entry : std::filesystem::directory_iterator(top_)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".scope") || !name.starts_with("corral-")) continue;
    EXPECT_TRUE(read_file(entry.path().string() + "/cgroup.procs")->empty());
    EXPECT_EQ(::rmdir(entry.path().c_str()), 0);
  }
}

}  // namespace
}  // namespace corral::isolate

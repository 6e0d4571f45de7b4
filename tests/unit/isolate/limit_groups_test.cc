// SPDX-License-Identifier: Apache-2.0
// Limits on the kernel at hand: in effect in the child, gone afterwards.
#include "isolate/limit_groups.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "in_child.h"
#include "isolate/apply.h"
#include "isolate/limit_places.h"
#include "must_work.h"

namespace corral::isolate {
namespace {

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

bool can_make_groups(const char* controller) {
  const V2Places places = find_v2_places(host::Root(), Manager{}, ::geteuid() == 0);
  return read_controller(host::Root(), controller, places).trouble.empty();
}

#define NEEDS_GROUPS(controller) \
  CORRAL_NEEDS("cgroup1", can_make_groups(controller), "no " controller " group can be made here")

Plan plan_of(const LimitsRequest& limits) {
  Request request;
  request.limits = limits;
  auto plan = plan_for(request);
  EXPECT_TRUE(plan) << plan.error().what;
  return plan ? *plan : Plan{};
}

// What the body answers inside, -1 where the limits could not be entered; all groups must be gone
// afterwards. `events`: of limit_events.
int inside(const Plan& plan, const std::function<int()>& body,
           std::vector<std::string>* events = nullptr) {
  auto prepared = prepare(plan);
  EXPECT_TRUE(prepared) << prepared.error().what;
  if (!prepared) return -2;
  std::vector<std::string> paths;
  for (const CgroupFolder& group : prepared->limit_groups) paths.push_back(group.path());
  const auto pid = fork_confined(*prepared);
  if (pid && *pid == 0) {
    if (!enter(*prepared)) ::_exit(99);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(*pid, &status, 0);
  if (events != nullptr) *events = limit_events(*prepared);
  EXPECT_TRUE(release(*prepared));
  for (const std::string& path : paths) EXPECT_FALSE(exists(path)) << path;
  if (WIFSIGNALED(status)) return 128 + WTERMSIG(status);
  return WEXITSTATUS(status);
}

unsigned first_cpu() { return affinity()->front(); }

TEST(limit_groups, one_cpu_is_all_the_child_has) {
  const Plan plan = plan_of({.cpus = ListRequest{.numbers = {first_cpu()}}});
  const unsigned cpu = first_cpu();
  EXPECT_EQ(inside(plan, [&] { return *affinity() == std::vector<unsigned>{cpu} ? 0 : 1; }), 0);
}

TEST(limit_groups, affinity_and_memory_policy_hold_where_no_group_can) {
  Plan plan =
      plan_of({.cpus = ListRequest{.numbers = {first_cpu()}}, .mems = ListRequest{.numbers = {0}}});
  for (Limit& limit : plan.limits) {
    limit.way = LimitWay::task;
    limit.parent.clear();
  }
  const unsigned cpu = first_cpu();
  EXPECT_EQ(inside(plan, [&] { return *affinity() == std::vector<unsigned>{cpu} ? 0 : 1; }), 0);
}

TEST(limit_groups, entering_a_cpuset_keeps_the_affinity_that_we_had) {
  NEEDS_GROUPS("cpuset");
  EXPECT_EQ(in_child([] {
              const std::vector<unsigned> cpus = *affinity();
              if (cpus.size() < 2) return 0;
              // As taskset would start us.
              if (!enter_limits({{.kind = LimitKind::cpus, .numbers = {cpus.back()}}}, {}))
                return 1;
              const Plan plan = plan_of({.mems = ListRequest{.numbers = {0}}});
              return inside(
                  plan, [&] { return *affinity() == std::vector<unsigned>{cpus.back()} ? 0 : 2; });
            }),
            0);
}

TEST(limit_groups, the_self_test_sees_a_limit_that_is_not_in_effect) {
  const std::vector<unsigned> cpus = *affinity();
  if (cpus.size() < 2) GTEST_SKIP() << "one CPU only";
  EXPECT_EQ(in_child([&] {
              // A group would hold this one, but there is none: the affinity set is another.
              std::vector<Limit> limits = {{.kind = LimitKind::cpus, .numbers = {cpus[0]}},
                                           {.kind = LimitKind::cpus, .numbers = {cpus[1]}}};
              return enter_limits(limits, {}) ? 1 : 0;
            }),
            0);
  EXPECT_EQ(in_child([&] {
              std::vector<Limit> limits = {{.kind = LimitKind::pids,
                                            .amount = 10,
                                            .way = LimitWay::cgroup1,
                                            .parent = "/nowhere"}};
              return enter_limits(limits, {}) ? 1 : 0;
            }),
            0);
}

TEST(limit_groups, the_kernel_ends_a_child_above_its_memory_and_the_group_says_so) {
  NEEDS_GROUPS("memory");
  const Plan plan = plan_of({.memory_bytes = 32U << 20});
  const auto fill = [](std::size_t bytes) {
    void* const memory =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    for (std::size_t at = 0; at < bytes; at += 4096) static_cast<volatile char*>(memory)[at] = 1;
    return 0;
  };
  std::vector<std::string> events;
  EXPECT_EQ(inside(plan, [&] { return fill(8U << 20); }, &events), 0);
  EXPECT_TRUE(events.empty());
  EXPECT_EQ(inside(plan, [&] { return fill(128U << 20); }, &events), 128 + 9);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_NE(events[0].find("memory 32 MiB"), std::string::npos) << events[0];
}

TEST(limit_groups, a_fork_above_the_count_fails_and_the_group_says_so) {
  NEEDS_GROUPS("pids");
  std::vector<std::string> events;
  EXPECT_EQ(inside(
                plan_of({.pids = 1}),
                [] {
                  const pid_t pid = ::fork();
                  if (pid == 0) ::_exit(0);
                  return pid < 0 && errno == EAGAIN ? 0 : 1;
                },
                &events),
            0);
  if (!events.empty()) {
    EXPECT_NE(events[0].find("at most 1"), std::string::npos) << events[0];
  }
}

TEST(limit_groups, all_at_once_beside_device_rules) {
  NEEDS_GROUPS("cpuset");
  NEEDS_GROUPS("memory");
  NEEDS_GROUPS("pids");
  Request request;
  request.refuse_paths = {"/dev/full"};
  request.limits = {.cpus = ListRequest{.numbers = {first_cpu()}},
                    .mems = ListRequest{.numbers = {0}},
                    .memory_bytes = 64U << 20,
                    .pids = 20};
  const auto plan = plan_for(request);
  ASSERT_TRUE(plan) << plan.error().what;
  EXPECT_EQ(plan->limits.size(), 4U);
  EXPECT_EQ(
      inside(*plan,
             [] { return ::access("/dev/full", R_OK) != 0 && affinity()->size() == 1 ? 0 : 1; }),
      0);
}

TEST(limit_groups, a_limit_that_cannot_be_written_leaves_no_group) {
  NEEDS_GROUPS("cpuset");
  Plan plan = plan_of({.cpus = ListRequest{.numbers = {first_cpu()}}});
  plan.limits[0].numbers = {8000};
  const auto prepared = prepare(plan);
  ASSERT_FALSE(prepared);
  EXPECT_NE(prepared.error().what.find("cpuset.cpus"), std::string::npos) << prepared.error().what;
  EXPECT_EQ(inside(plan_of({.cpus = ListRequest{.numbers = {first_cpu()}}}), [] { return 0; }), 0);
}

}  // namespace
}  // namespace corral::isolate

// SPDX-License-Identifier: Apache-2.0
#include "rules/expectation.h"

#include <gtest/gtest.h>

#include "rules/engine.h"

namespace corral::rules {
namespace {

using snapshot::Context;
using snapshot::Expectation;
using snapshot::Init;
using JobRun = snapshot::Run;

JobRun traced(Expectation::Kind kind, unsigned gpus = 2) {
  JobRun run;
  run.traced = true;
  run.expectation.kind = kind;
  for (unsigned i = 0; i < gpus; ++i) {
    snapshot::GpuRun& gpu = run.gpus.emplace_back();
    gpu.gpu.index = i;
    gpu.allowed = true;
  }
  return run;
}

Context context(pid_t pid, int ordinal, unsigned gpu, double time_s = 1) {
  Context out;
  out.pid = pid;
  out.ordinal = ordinal;
  out.gpu = gpu;
  out.time_s = time_s;
  return out;
}

Init init(pid_t pid, std::map<std::string, std::string> ranks,
          std::optional<std::string> visible = {}) {
  Init out;
  out.pid = pid;
  out.rank_variables = std::move(ranks);
  out.visible_devices = std::move(visible);
  return out;
}

TEST(expectation, without_one_nothing_is_a_stray) {
  JobRun run = traced(Expectation::Kind::none);
  run.gpus[0].allowed = false;
  run.contexts = {context(1, 0, 0)};
  EXPECT_TRUE(mark_strays(run).empty());
  EXPECT_FALSE(run.contexts[0].stray);
}

TEST(expectation, a_context_on_another_gpu_than_expected_is_a_stray) {
  JobRun run = traced(Expectation::Kind::gpus);
  run.gpus[0].allowed = false;
  run.contexts = {context(1, 0, 0), context(1, 1, 1)};
  mark_strays(run);
  EXPECT_TRUE(run.contexts[0].stray);
  EXPECT_FALSE(run.contexts[1].stray);
}

TEST(expectation, a_rank_belongs_on_the_device_of_its_number) {
  JobRun run = traced(Expectation::Kind::rank);
  run.inits = {init(1, {{"LOCAL_RANK", "1"}}), init(2, {{"SLURM_LOCALID", "0"}})};
  run.contexts = {context(1, 0, 0), context(1, 1, 1), context(2, 0, 0)};
  EXPECT_TRUE(mark_strays(run).empty());
  EXPECT_TRUE(run.contexts[0].stray);
  EXPECT_FALSE(run.contexts[1].stray);
  EXPECT_FALSE(run.contexts[2].stray);
}

TEST(expectation, a_rank_that_sees_one_gpu_is_right_on_it) {
  JobRun run = traced(Expectation::Kind::rank);
  run.inits = {
      init(1, {{"LOCAL_RANK", "1"}}, "1"),        init(2, {{"LOCAL_RANK", "1"}}, "GPU-ab, -1,0"),
      init(3, {{"LOCAL_RANK", "1"}}, "0,7"),      init(4, {{"LOCAL_RANK", "1"}}, "0x1"),
      init(5, {{"LOCAL_RANK", "1"}}, "GPU-ab,0"), init(6, {{"LOCAL_RANK", "1"}}, "0,GPU-ab")};
  for (pid_t pid = 1; pid <= 6; ++pid) run.contexts.push_back(context(pid, 0, 0));
  EXPECT_TRUE(mark_strays(run).empty());
  for (const Context& c : run.contexts) EXPECT_FALSE(c.stray) << c.pid;
}

TEST(expectation, an_entry_that_names_no_gpu_of_this_machine_is_not_counted) {
  JobRun run = traced(Expectation::Kind::rank);
  run.gpus[0].gpu.uuid = "GPU-2a4d0660";
  run.gpus[1].gpu.uuid = "GPU-2b685718";
  run.inits = {init(1, {{"LOCAL_RANK", "1"}}, "GPU-2b,GPU-dead"),
               init(2, {{"LOCAL_RANK", "1"}}, "GPU-2b,GPU-2"),
               init(3, {{"LOCAL_RANK", "1"}}, "GPU-2B,GPU-2a")};
  for (pid_t pid = 1; pid <= 3; ++pid) run.contexts.push_back(context(pid, 0, 1));
  EXPECT_TRUE(mark_strays(run).empty());
  EXPECT_FALSE(run.contexts[0].stray) << "it sees one";
  EXPECT_FALSE(run.contexts[1].stray) << "GPU-2 is the beginning of two";
  EXPECT_TRUE(run.contexts[2].stray) << "it sees both";
}

TEST(expectation, of_mig_instances_a_process_sees_one) {
  JobRun run = traced(Expectation::Kind::rank);
  run.inits = {init(1, {{"LOCAL_RANK", "1"}}), init(2, {{"LOCAL_RANK", "1"}}, "MIG-a,MIG-b"),
               init(3, {{"LOCAL_RANK", "1"}}, "0,1")};
  for (snapshot::GpuRun& gpu : run.gpus) gpu.gpu.mig_enabled = true;
  for (pid_t pid = 1; pid <= 3; ++pid) run.contexts.push_back(context(pid, 0, 0));
  EXPECT_TRUE(mark_strays(run).empty());
  for (const Context& c : run.contexts) EXPECT_FALSE(c.stray) << c.pid;
}

TEST(expectation, the_first_variable_that_is_set_decides_whatever_it_says) {
  snapshot::Init init;
  EXPECT_EQ(local_rank_variable(init), std::nullopt);
  init.rank_variables = {{"SLURM_LOCALID", "1"}, {"RANK", "9"}};
  EXPECT_EQ(local_rank_variable(init)->second, "1");
  init.rank_variables["LOCAL_RANK"] = "two";
  EXPECT_EQ(local_rank_variable(init)->first, "LOCAL_RANK");
  EXPECT_EQ(local_rank_variable(init)->second, "two");
}

TEST(expectation, the_global_rank_is_no_local_rank) {
  JobRun run = traced(Expectation::Kind::rank);
  run.inits = {init(1, {{"RANK", "1"}})};
  run.contexts = {context(1, 0, 0), context(1, 1, 1)};
  const auto not_checked = mark_strays(run);
  ASSERT_EQ(not_checked.size(), 1U) << "one entry a process";
  EXPECT_EQ(not_checked[0].id, kExpectRank);
  EXPECT_NE(not_checked[0].why.find("pid 1"), std::string::npos);
  EXPECT_NE(not_checked[0].why.find("no rank variable"), std::string::npos);
  EXPECT_FALSE(run.contexts[0].stray);
}

TEST(expectation, who_cannot_be_judged_is_not_accused) {
  JobRun run = traced(Expectation::Kind::rank, 3);
  run.inits = {init(1, {{"LOCAL_RANK", "x"}}), init(2, {{"LOCAL_RANK", "2"}}, "0,1")};
  run.contexts = {context(1, 1, 1), context(2, 1, 1), context(3, 1, 1)};
  EXPECT_EQ(mark_strays(run).size(), 3U);
  for (const Context& c : run.contexts) EXPECT_FALSE(c.stray) << c.pid;
}

TEST(expectation, the_initialisation_before_the_context_counts) {
  JobRun run = traced(Expectation::Kind::rank);
  run.inits = {init(1, {{"LOCAL_RANK", "0"}}), init(1, {{"LOCAL_RANK", "1"}})};
  run.inits[1].time_s = 5;
  run.contexts = {context(1, 0, 0, 1), context(1, 0, 0, 6)};
  mark_strays(run);
  EXPECT_FALSE(run.contexts[0].stray);
  EXPECT_TRUE(run.contexts[1].stray) << "another program of the same pid";
}

TEST(expectation, what_was_refused_in_the_process_is_a_stray) {
  JobRun run = traced(Expectation::Kind::rank);
  run.contexts = {context(1, 0, 0)};
  run.contexts[0].denied = true;
  const Verdict verdict = judge(run);
  EXPECT_TRUE(run.contexts[0].stray);
  ASSERT_FALSE(verdict.findings.empty());
  EXPECT_NE(verdict.findings[0].title.find("was refused a context"), std::string::npos);
}

}  // namespace
}  // namespace corral::rules

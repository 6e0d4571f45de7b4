// SPDX-License-Identifier: Apache-2.0
#include "rules/engine.h"

#include <gtest/gtest.h>

#include <set>

namespace corral::rules {
namespace {

using snapshot::Context;
using snapshot::GpuRun;
using snapshot::Init;
using JobRun = snapshot::Run;

GpuRun gpu(unsigned index, bool allowed) {
  GpuRun out;
  out.gpu.index = index;
  out.gpu.uuid = "GPU-" + std::to_string(index);
  out.allowed = allowed;
  return out;
}

Context context(unsigned on, pid_t pid) {
  Context out;
  out.gpu = on;
  out.pid = pid;
  out.process = "python3 train.py";
  out.call = "cuDevicePrimaryCtxRetain";
  return out;
}

// Two GPUs, GPU 1 given by the variable alone.
JobRun run_on_gpu_1() {
  JobRun run;
  run.gpus = {gpu(0, false), gpu(1, true)};
  run.confinement.requested = true;
  run.confinement.visible_devices = "GPU-1";
  return run;
}

std::vector<std::string> ids(const Verdict& verdict) {
  std::vector<std::string> out;
  for (const Finding& finding : verdict.findings) out.push_back(finding.id);
  return out;
}

TEST(engine, every_rule_has_an_id_of_its_own_and_all_its_texts) {
  std::set<std::string_view> seen;
  for (const Rule* rule : all_rules()) {
    EXPECT_TRUE(seen.insert(rule->id).second) << rule->id;
    EXPECT_NE(rule->id.find('.'), std::string_view::npos) << rule->id;
    for (const std::string_view text : {rule->summary, rule->cause, rule->verify, rule->fix})
      EXPECT_FALSE(text.empty()) << rule->id;
    EXPECT_NE(rule->check, nullptr) << rule->id;
  }
  EXPECT_FALSE(seen.empty()) << "no rule is linked in";
}

TEST(engine, a_context_on_a_given_gpu_is_no_stray) {
  JobRun run = run_on_gpu_1();
  run.contexts = {context(1, 10)};
  EXPECT_TRUE(judge(run).findings.empty());
  EXPECT_FALSE(run.contexts[0].stray);
}

TEST(engine, without_a_selection_nothing_is_a_stray) {
  JobRun run = run_on_gpu_1();
  run.confinement.requested = false;
  run.contexts = {context(0, 10)};
  EXPECT_TRUE(judge(run).findings.empty());
  EXPECT_FALSE(run.contexts[0].stray);
}

TEST(engine, a_context_on_an_unknown_device_is_not_accused) {
  JobRun run = run_on_gpu_1();
  run.contexts = {context(0, 10)};
  run.contexts[0].gpu.reset();
  EXPECT_TRUE(judge(run).findings.empty());
}

TEST(engine, each_stray_has_exactly_one_finding) {
  JobRun run = run_on_gpu_1();
  run.contexts = {context(0, 10), context(0, 11)};
  Init init;
  init.pid = 10;
  init.visible_devices = "0,1";
  run.inits = {init};
  EXPECT_EQ(ids(judge(run)),
            (std::vector<std::string>{"stray.changed-variable", "stray.unexplained"}));
  EXPECT_EQ(run.contexts[0].finding, "stray.changed-variable");
  EXPECT_EQ(run.contexts[1].finding, "stray.unexplained");
}

TEST(changed_variable, does_not_fire_when_the_variable_was_as_given) {
  JobRun run = run_on_gpu_1();
  run.contexts = {context(0, 10)};
  Init init;
  init.pid = 10;
  init.visible_devices = "GPU-1";
  run.inits = {init};
  EXPECT_EQ(ids(judge(run)), std::vector<std::string>{"stray.unexplained"});
}

TEST(changed_variable, a_failed_init_is_not_the_one_that_counts) {
  JobRun run = run_on_gpu_1();
  run.contexts = {context(0, 10)};
  Init failed;
  failed.pid = 10;
  failed.result = 100;
  failed.visible_devices = "GPU-1";
  Init good = failed;
  good.result = 0;
  good.visible_devices = "0";
  run.inits = {failed, good};
  const Verdict verdict = judge(run);
  ASSERT_EQ(ids(verdict), std::vector<std::string>{"stray.changed-variable"});
  EXPECT_EQ(verdict.findings[0].evidence.back(), "at cuInit CUDA_VISIBLE_DEVICES=0");
}

TEST(changed_variable, names_the_users_line) {
  JobRun run = run_on_gpu_1();
  run.contexts = {context(0, 10)};
  run.contexts[0].culprit = {.file = "train.py", .line = 88, .function = "evaluate"};
  Init init;
  init.pid = 10;
  init.visible_devices = "0";
  run.inits = {init};
  const Verdict verdict = judge(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].evidence.front(),
            "cuDevicePrimaryCtxRetain called from train.py:88 in evaluate");
}

TEST(other_process, only_those_that_are_not_of_the_job) {
  JobRun run = run_on_gpu_1();
  run.gpus[0].processes = {{.pid = 6, .memory_bytes = {}, .of_job = false, .command = ""}};
  const Verdict verdict = judge(run);
  ASSERT_EQ(ids(verdict), std::vector<std::string>{"run.other-process"});
  EXPECT_EQ(verdict.findings[0].pid, 6);
  EXPECT_TRUE(verdict.findings[0].evidence.empty()) << "unknown memory is not 0 MiB";
}

TEST(other_process, an_mps_server_is_named_as_one_but_for_the_jobs_own) {
  JobRun run = run_on_gpu_1();
  for (snapshot::GpuRun& gpu : run.gpus)
    gpu.processes = {
        {.pid = 6, .memory_bytes = {}, .of_job = false, .command = "nvidia-cuda-mps-server ''"}};
  run.mps = snapshot::MpsShare{};
  run.mps->gpu = 1;
  const Verdict verdict = judge(run);
  ASSERT_EQ(ids(verdict), std::vector<std::string>{"run.other-process"});
  EXPECT_EQ(verdict.findings[0].gpu, 0U);
  EXPECT_TRUE(verdict.findings[0].title.starts_with("an MPS server, pid 6, was on GPU 0"));
}

TEST(listed_process, only_of_the_job_on_a_gpu_not_given_and_without_a_context_of_its_own) {
  JobRun run = run_on_gpu_1();
  run.gpus[0].processes = {{.pid = 5, .memory_bytes = 518 << 20, .of_job = true, .command = "job"},
                           {.pid = 7, .memory_bytes = {}, .of_job = true, .command = "seen"}};
  run.gpus[1].processes = {{.pid = 6, .memory_bytes = {}, .of_job = true, .command = "job"}};
  run.contexts = {context(0, 7)};
  EXPECT_EQ(ids(judge(run)),
            (std::vector<std::string>{"stray.listed-process", "stray.unexplained"}));
}

TEST(unobserved, is_comforted_only_where_the_kernel_enforces) {
  JobRun run = run_on_gpu_1();
  run.coverage.unobserved = {{.pid = 9, .process = "x", .why = "y"}};
  EXPECT_EQ(judge(run).findings.at(0).fix.find("kernel"), std::string::npos);
  run.confinement.enforced = "cgroup";
  EXPECT_NE(judge(run).findings.at(0).fix.find("kernel"), std::string::npos);
}

// Who has used `corral run` is not told to use it, and one around all ranks keeps none from
// another.
TEST(unexplained, advises_what_was_not_done_yet) {
  JobRun run = run_on_gpu_1();
  run.contexts = {context(0, 10)};
  const auto advises = [&](const std::string& words) {
    JobRun judged = run;
    return judge(judged).findings.at(0).fix.find(words) != std::string::npos;
  };
  EXPECT_TRUE(advises("--enforce auto"));
  run.confinement.requested = false;
  run.expectation.kind = snapshot::Expectation::Kind::gpus;
  EXPECT_FALSE(advises("--enforce auto"));
  EXPECT_TRUE(advises("corral run --gpus"));
  run.contexts[0].ordinal = 0;
  run.expectation.kind = snapshot::Expectation::Kind::rank;
  Init init;
  init.pid = 10;
  init.rank_variables = {{"LOCAL_RANK", "1"}};
  run.inits = {init};
  EXPECT_TRUE(advises("for each rank"));
}

TEST(orphan, only_one_that_still_holds_a_gpu) {
  JobRun run = run_on_gpu_1();
  run.orphans = {{.pid = 7, .process = "sleep", .gpus = {}},
                 {.pid = 8, .process = "worker", .gpus = {1}}};
  const Verdict verdict = judge(run);
  ASSERT_EQ(ids(verdict), std::vector<std::string>{"run.orphan"});
  EXPECT_EQ(verdict.findings[0].pid, 8);
}

TEST(engine, strays_beyond_those_that_are_explained_are_counted_and_none_is_lost) {
  JobRun run = run_on_gpu_1();
  for (pid_t pid = 1; pid <= 2010; ++pid) run.contexts.push_back(context(0, pid));
  run.contexts.push_back(context(1, 1));
  const Verdict verdict = judge(run);
  std::size_t further = 0;
  for (const Finding& finding : verdict.findings)
    if (finding.id == "stray.further") {
      EXPECT_EQ(finding.title, "the job made 10 more stray contexts");
      further += finding.contexts.size();
    }
  EXPECT_EQ(further, 10U);
  EXPECT_EQ(stray_count(verdict), 2001U);
  EXPECT_EQ(run.contexts[1999].finding, "stray.unexplained");
  EXPECT_EQ(run.contexts[2000].finding, "stray.further");
  EXPECT_EQ(run.contexts[2010].finding, "");
}

TEST(engine, findings_come_gravest_first) {
  JobRun run = run_on_gpu_1();
  run.contexts = {context(0, 10)};
  run.coverage.unobserved = {{.pid = 9, .process = "x", .why = "y"}};
  run.gpus[0].processes = {{.pid = 6, .memory_bytes = {}, .of_job = false, .command = ""}};
  EXPECT_EQ(ids(judge(run)),
            (std::vector<std::string>{"stray.unexplained", "run.unobserved", "run.other-process"}));
}

}  // namespace
}  // namespace corral::rules

// SPDX-License-Identifier: Apache-2.0
// Shares of MPS are each process's: what several of them had together.
#include <gtest/gtest.h>

#include "rules/engine.h"

namespace corral::rules {
namespace {

using JobRun = snapshot::Run;

constexpr std::uint64_t kGib = 1ULL << 30;

JobRun a_run(double percent, std::optional<std::uint64_t> memory = {}) {
  JobRun run;
  run.gpus.resize(2);
  run.gpus[1].gpu.index = 1;
  run.gpus[1].gpu.memory_total_bytes = 80 * kGib;
  run.gpus[1].allowed = true;
  run.confinement.requested = true;
  run.mps = snapshot::MpsShare{.percent = percent,
                               .memory_bytes = memory,
                               .gpu = 1,
                               .daemon_pid = 9,
                               .daemon_enforced = "cgroup"};
  return run;
}

// A process with a context from `begin_s` on; `exit_s` nullopt: it was killed some time.
void process(JobRun& run, pid_t pid, double begin_s, std::optional<double> exit_s,
             unsigned gpu = 1) {
  snapshot::Init init;
  init.pid = pid;
  init.time_s = begin_s;
  init.exited_s = exit_s;
  run.inits.push_back(init);
  snapshot::Context context;
  context.pid = pid;
  context.gpu = gpu;
  context.time_s = begin_s;
  run.contexts.push_back(context);
}

std::vector<Finding> findings(JobRun run) {
  std::vector<Finding> out;
  for (Finding& finding : judge(run).findings)
    if (finding.id == "run.mps-share") out.push_back(std::move(finding));
  return out;
}

TEST(mps_share, of_processes_that_lived_at_once_is_added_up) {
  JobRun run = a_run(40, 30 * kGib);
  for (int i = 0; i < 4; ++i) process(run, 10 + i, i, 10);
  const auto found = findings(run);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].title, "4 processes at once, each with 40 % of GPU 1: 160 % together");
  EXPECT_EQ(found[0].severity, Severity::warning);
  EXPECT_EQ(found[0].evidence.at(0), "device memory: 4 × 30720 MiB = 122880 MiB of 81920 MiB");
}

TEST(mps_share, of_memory_alone_can_be_too_much) {
  JobRun run = a_run(25, 50 * kGib);
  for (int i = 0; i < 2; ++i) process(run, 10 + i, 0, 10);
  const auto found = findings(run);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].title,
            "2 processes at once, each with 51200 MiB: more together than GPU 1 has");
}

TEST(mps_share, that_fits_is_not_spoken_of) {
  JobRun run = a_run(25, 20 * kGib);
  for (int i = 0; i < 4; ++i) process(run, 10 + i, 0, 10);
  EXPECT_TRUE(findings(run).empty());
  JobRun alone = a_run(100, 100 * kGib);
  process(alone, 10, 0, 10);
  EXPECT_TRUE(findings(alone).empty()) << "one process";
  JobRun without = a_run(60);
  without.mps.reset();
  for (int i = 0; i < 4; ++i) process(without, 10 + i, 0, 10);
  EXPECT_TRUE(findings(without).empty()) << "no share was given";
}

TEST(mps_share, of_processes_one_after_the_other_is_not_added_up) {
  JobRun run = a_run(60);
  for (int i = 0; i < 4; ++i) process(run, 10 + i, i * 10, i * 10 + 9);
  EXPECT_TRUE(findings(run).empty());
}

TEST(mps_share, of_a_process_whose_end_is_not_known_counts_only_where_it_was_seen) {
  JobRun run = a_run(60);
  process(run, 10, 0, {});
  process(run, 11, 5, 10);
  EXPECT_TRUE(findings(run).empty());
}

TEST(mps_share, counts_contexts_of_that_gpu_and_each_process_once) {
  JobRun run = a_run(60);
  process(run, 10, 0, 10);
  process(run, 11, 0, 10, 0);
  run.contexts.push_back(run.contexts.front());
  EXPECT_TRUE(findings(run).empty());
}

}  // namespace
}  // namespace corral::rules

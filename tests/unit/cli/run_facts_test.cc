// SPDX-License-Identifier: Apache-2.0
#include "cli/run_facts.h"

#include <gtest/gtest.h>

namespace corral::cli {
namespace {

constexpr pid_t kPid = 4711;

snapshot::Run run_with_pid_on_gpu(unsigned gpu) {
  snapshot::Run run;
  run.gpus.resize(2);
  for (snapshot::GpuRun& entry : run.gpus) entry.contexts = 0;
  run.gpus[gpu].processes = {{.pid = kPid, .memory_bytes = 1, .of_job = true, .command = {}}};
  return run;
}

launch::SeenProcess with_shim(const std::string& injection = "") {
  return {.pid = kPid,
          .start_ticks = 9,
          .command = "python3 train.py",
          .maps_driver = true,
          .maps_shim = true,
          .injection = injection,
          .unobserved_why = {}};
}

trace::ProcessTrace empty_trace() {
  trace::ProcessTrace trace;
  trace.pid = kPid;
  trace.start_time_ticks = 9;
  return trace;
}

TEST(add_processes, one_that_says_nothing_and_is_on_a_gpu_went_past_the_shim) {
  for (const bool has_trace : {false, true}) {
    snapshot::Run run = run_with_pid_on_gpu(0);
    std::vector<trace::ProcessTrace> traces;
    if (has_trace) traces.push_back(empty_trace());
    add_processes({with_shim("libcuda-injection.so")}, traces, run);
    ASSERT_EQ(run.coverage.unobserved.size(), 1U);
    EXPECT_NE(run.coverage.unobserved[0].why.find("libcuda-injection.so"), std::string::npos);
    EXPECT_EQ(run.coverage.observed, 0U);
    EXPECT_EQ(run.gpus[0].contexts, std::nullopt) << "none was seen, and one is there";
    EXPECT_EQ(run.gpus[1].contexts, 0U);
  }
}

TEST(add_processes, one_that_says_nothing_and_is_on_no_gpu_is_observed) {
  snapshot::Run run;
  run.gpus.resize(1);
  add_processes({with_shim()}, {}, run);
  EXPECT_EQ(run.coverage.observed, 1U);
  EXPECT_TRUE(run.coverage.unobserved.empty());
}

TEST(add_processes, one_that_told_its_contexts_is_observed_whatever_nvml_lists) {
  snapshot::Run run = run_with_pid_on_gpu(0);
  run.gpus[0].contexts = 1;
  trace::ProcessTrace trace = empty_trace();
  trace.contexts.emplace_back();
  add_processes({with_shim("libcuda-injection.so")}, {trace}, run);
  EXPECT_TRUE(run.coverage.unobserved.empty());
  EXPECT_EQ(run.gpus[0].contexts, 1U);
}

}  // namespace
}  // namespace corral::cli

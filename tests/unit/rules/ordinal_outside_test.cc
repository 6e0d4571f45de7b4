// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "rules/engine.h"

namespace corral::rules {
namespace {

using JobRun = snapshot::Run;

// GPU 1 of two was given, and the job failed.
JobRun failed_on_gpu_1() {
  JobRun run;
  run.gpus.resize(2);
  run.gpus[1].gpu.index = 1;
  run.gpus[1].allowed = true;
  run.confinement.requested = true;
  run.exit.code = 1;
  return run;
}

std::vector<Finding> findings(JobRun run) {
  std::vector<Finding> out;
  for (Finding& finding : judge(run).findings)
    if (finding.id == "run.ordinal-outside") out.push_back(std::move(finding));
  return out;
}

TEST(ordinal_outside, a_number_that_cuda_refused_is_named_with_its_line) {
  JobRun run = failed_on_gpu_1();
  run.no_such_devices = {{.pid = 7,
                          .process = "p",
                          .time_s = 0,
                          .call = "cuDeviceGet",
                          .ordinal = 1,
                          .culprit = {{.file = "a.py", .line = 3, .function = "f"}}}};
  const auto found = findings(run);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].title,
            "the job asked for device 1 (a.py:3), and it sees one GPU: GPU 1 is cuda:0 inside");
  EXPECT_EQ(found[0].severity, Severity::info);
  run.exit.code = 0;
  EXPECT_TRUE(findings(run).empty()) << "it went on";
  run.exit.code = 1;
  run.gpus[0].allowed = true;
  EXPECT_TRUE(findings(run).empty()) << "nothing was renumbered";
  run.gpus[0].allowed = false;
  run.confinement.requested = false;
  EXPECT_TRUE(findings(run).empty());
}

TEST(ordinal_outside, of_a_job_that_a_signal_ended_only_what_the_driver_answered_counts) {
  JobRun run = failed_on_gpu_1();
  run.exit = {.code = {}, .signal = 6};
  run.sources["a.py"] = "x.to('cuda:1')\n";
  EXPECT_TRUE(findings(run).empty());
  run.no_such_devices.resize(1);
  run.no_such_devices[0].ordinal = 1;
  EXPECT_EQ(findings(run).size(), 1U);
}

TEST(ordinal_outside, a_number_that_is_there_was_refused_for_another_reason) {
  JobRun run = failed_on_gpu_1();
  run.no_such_devices.resize(1);
  run.no_such_devices[0].ordinal = 0;
  EXPECT_TRUE(findings(run).empty());
}

TEST(ordinal_outside, a_number_in_the_text_of_a_failed_job_is_a_hint) {
  JobRun run = failed_on_gpu_1();
  run.sources["/home/u/train.py"] = "import torch\n# on \"cuda:1\"\nx = model.to('cuda:1')\n";
  const auto found = findings(run);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_NE(found[0].title.find("cuda:1 (/home/u/train.py:3)"), std::string::npos)
      << found[0].title;
  EXPECT_NE(found[0].evidence.at(1).find("not known"), std::string::npos);
  run.sources["/home/u/train.py"] = "x = model.to('cuda:0'); y = 'cuda'; z = 'cuda:x'\n";
  EXPECT_TRUE(findings(run).empty());
}

TEST(ordinal_outside, several_gpus_are_told_with_their_numbers) {
  JobRun run = failed_on_gpu_1();
  run.gpus.resize(4);
  for (unsigned i = 0; i < 4; ++i) {
    run.gpus[i].gpu.index = i;
    run.gpus[i].allowed = i >= 2;
  }
  run.sources["a.py"] = "d = 'cuda:3'\n";
  const auto found = findings(run);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_NE(found[0].title.find("2 GPUs, which are cuda:0 to cuda:1 inside"), std::string::npos);
}

}  // namespace
}  // namespace corral::rules

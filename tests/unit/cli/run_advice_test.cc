// SPDX-License-Identifier: Apache-2.0
// What a plan says of the surroundings and of the command reaches the report whole.
#include <gtest/gtest.h>

#include "cli/run_facts.h"

namespace corral::cli {
namespace {

TEST(run_facts, surroundings_and_advice_are_kept) {
  isolate::Plan plan;
  plan.around = {{.place = {.kind = host::Surrounding::Kind::slurm,
                            .name = "Slurm job 7",
                            .evidence = "SLURM_JOB_ID"},
                  .given_by = "SLURM_JOB_GPUS=1",
                  .given_count = 1,
                  .held = false,
                  .text = "in Slurm job 7"}};
  plan.advice = {{.what = "docker leaves", .instead = "type this", .leaves = true}};
  const snapshot::Run run = planned_run({}, plan, {}, {"true"});
  ASSERT_EQ(run.confinement.around.size(), 1U);
  const snapshot::Around& around = run.confinement.around[0];
  EXPECT_EQ(around.kind, "slurm");
  EXPECT_EQ(around.name, "Slurm job 7");
  EXPECT_EQ(around.evidence, "SLURM_JOB_ID");
  EXPECT_EQ(around.given_by, "SLURM_JOB_GPUS=1");
  EXPECT_EQ(around.given_count, 1U);
  EXPECT_EQ(around.held, false);
  EXPECT_EQ(around.text, "in Slurm job 7");
  ASSERT_EQ(run.confinement.advice.size(), 1U);
  EXPECT_EQ(run.confinement.advice[0].what, "docker leaves");
  EXPECT_EQ(run.confinement.advice[0].instead, "type this");
  EXPECT_TRUE(run.confinement.advice[0].leaves);
}

}  // namespace
}  // namespace corral::cli

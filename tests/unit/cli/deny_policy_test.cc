// SPDX-License-Identifier: Apache-2.0
#include "cli/deny_policy.h"

#include <gtest/gtest.h>

namespace corral::cli {
namespace {

snapshot::Run two_gpus() {
  snapshot::Run run;
  run.gpus.resize(3);
  for (unsigned i = 0; i < 3; ++i) run.gpus[i].gpu.index = i;
  run.gpus[0].gpu.uuid = "GPU-aa";
  run.gpus[1].gpu.uuid = "GPU-bb";
  run.gpus[1].allowed = true;
  run.gpus[0].gpu.mig.emplace_back().uuid = "MIG-cc";
  return run;
}

TEST(deny_policy, marks_what_is_refused_by_number_and_uuid) {
  snapshot::Run run = two_gpus();
  run.expectation.kind = snapshot::Expectation::Kind::gpus;
  EXPECT_EQ(deny_policy(run), "gpus;0=GPU-aa!;0=MIG-cc!;1=GPU-bb")
      << "what has no UUID cannot be recognised, and is not refused";
}

TEST(deny_policy, leaves_it_to_the_ranks) {
  snapshot::Run run = two_gpus();
  run.expectation.kind = snapshot::Expectation::Kind::rank;
  run.simulated = true;
  EXPECT_EQ(deny_policy(run), "rank;simulated;0=GPU-aa;0=MIG-cc;1=GPU-bb");
}

}  // namespace
}  // namespace corral::cli

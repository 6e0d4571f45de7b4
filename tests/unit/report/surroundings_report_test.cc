// SPDX-License-Identifier: Apache-2.0
// What we are in and what leaves the run, in the verdict and in the JSON report.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "report/run_json.h"
#include "report/run_text.h"

namespace corral::report {
namespace {

snapshot::Run run_in_slurm() {
  snapshot::Run run;
  run.command = {"docker", "run", "i"};
  run.exit.code = 0;
  run.confinement.enforced = "cgroup";
  run.confinement.not_covered = {"docker leaves\x1b[2J", "a hole without advice"};
  run.confinement.around = {{.kind = "slurm",
                             .name = "Slurm job 7",
                             .evidence = "SLURM_JOB_ID",
                             .given_by = "SLURM_JOB_GPUS=1",
                             .given_count = 1,
                             .held = false,
                             .text = "in Slurm job 7, given 1 GPU"}};
  run.confinement.advice = {
      {.what = "docker leaves\x1b[2J", .instead = "docker run --gpus x", .leaves = true},
      {.what = "GPU 0 is perhaps another job's", .instead = "", .leaves = false}};
  return run;
}

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(surroundings_report, each_surrounding_is_one_line) {
  const std::string text = run_text(run_in_slurm(), {}, {});
  EXPECT_EQ(count(text, "corral: in Slurm job 7, given 1 GPU\n"), 1U);
  EXPECT_EQ(count(run_text(snapshot::Run{}, {}, {}), "corral: in "), 0U);
}

TEST(surroundings_report, a_way_out_is_said_once_with_what_to_type) {
  const std::string text = run_text(run_in_slurm(), {}, {});
  EXPECT_EQ(count(text, "docker leaves"), 1U);
  EXPECT_NE(text.find("not covered: docker leaves\\x1b[2J\n    instead: docker run --gpus x\n"),
            text.npos);
  EXPECT_NE(text.find("not covered: a hole without advice\ncorral: warning: GPU 0 is perhaps"),
            text.npos);
}

TEST(surroundings_report, the_json_report_has_both) {
  const auto json = nlohmann::json::parse(run_json(run_in_slurm(), {}));
  const auto& around = json["around"][0];
  EXPECT_EQ(around["kind"], "slurm");
  EXPECT_EQ(around["given_by"], "SLURM_JOB_GPUS=1");
  EXPECT_EQ(around["given_count"], 1);
  EXPECT_EQ(around["held"], false);
  EXPECT_EQ(json["advice"][0]["instead"], "docker run --gpus x");
  EXPECT_TRUE(json["advice"][1]["instead"].is_null());
  const auto none = nlohmann::json::parse(run_json(snapshot::Run{}, {}));
  EXPECT_TRUE(none["around"].empty());
  EXPECT_TRUE(none["advice"].empty());
}

}  // namespace
}  // namespace corral::report

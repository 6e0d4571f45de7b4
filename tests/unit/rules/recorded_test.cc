// SPDX-License-Identifier: Apache-2.0
// Each recorded run: who strayed, by which line, why, and silence about those that did not.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "recorded_runs.h"
#include "rules/engine.h"
#include "rules/stray_context.h"

namespace corral::rules {
namespace {

class Recorded : public testing::TestWithParam<std::string> {
 protected:
  Recorded() : recorded_(recorded_run(GetParam())) { verdict_ = judge(recorded_.run); }
  RecordedRun recorded_;
  Verdict verdict_;
};

TEST_P(Recorded, gives_the_wanted_findings_and_no_other) {
  std::set<std::string> ids;
  for (const Finding& finding : verdict_.findings) ids.insert(finding.id);
  EXPECT_EQ(std::vector<std::string>(ids.begin(), ids.end()), recorded_.findings);
}

TEST_P(Recorded, each_stray_has_one_finding_and_the_wanted_line) {
  std::size_t strays = 0;
  for (const snapshot::Context& context : recorded_.run.contexts) {
    if (!context.stray) continue;
    ++strays;
    EXPECT_FALSE(context.finding.empty());
    ASSERT_TRUE(context.culprit);
    EXPECT_NE(std::ranges::find(recorded_.culprits, place(*context.culprit)),
              recorded_.culprits.end())
        << place(*context.culprit);
  }
  EXPECT_EQ(strays, verdict_.findings.size());
  EXPECT_EQ(strays == 0, recorded_.findings.empty());
}

TEST_P(Recorded, the_cause_is_named) {
  for (const std::string& cause : recorded_.causes) {
    const bool named = std::ranges::any_of(verdict_.findings, [&](const Finding& finding) {
      return std::ranges::any_of(finding.evidence, [&](const std::string& line) {
        return line.find(cause + ":") != std::string::npos;
      });
    });
    EXPECT_TRUE(named) << cause;
  }
}

TEST_P(Recorded, the_fix_says_the_device_and_not_a_letter) {
  if (recorded_.run.expectation.kind == snapshot::Expectation::Kind::rank) return;
  for (const Finding& finding : verdict_.findings) {
    EXPECT_EQ(finding.fix.find("cuda:N"), std::string::npos) << finding.fix;
    EXPECT_EQ(finding.fix.find("(N)"), std::string::npos) << finding.fix;
  }
}

// Without an expectation a run has no strays, and only a value that speaks for itself is told.
TEST_P(Recorded, without_an_expectation_only_a_late_variable_is_told) {
  RecordedRun again = recorded_run(GetParam());
  again.run.expectation.kind = snapshot::Expectation::Kind::none;
  for (const Finding& finding : judge(again.run).findings) {
    EXPECT_EQ(finding.id, "stray.late-env");
    EXPECT_NE(finding.severity, Severity::error);
  }
}

INSTANTIATE_TEST_SUITE_P(runs, Recorded, testing::ValuesIn(recorded_run_names()),
                         [](const auto& with) { return with.param; });

}  // namespace
}  // namespace corral::rules

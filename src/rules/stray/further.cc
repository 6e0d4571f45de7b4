// SPDX-License-Identifier: Apache-2.0
// The strays beyond those that are looked at one by one.
#include <fmt/format.h>

#include "rules/stray_context.h"

namespace corral::rules {
namespace {

Outcome check(const snapshot::Run& run);

const Registered<Rule> rule{
    Rule{.id = "stray.further",
         .severity = Severity::error,
         .summary = "more stray contexts than are explained one by one",
         .cause = "Not looked at: the first 2000 are explained, and these came after them. They "
                  "are most often of the same lines.",
         .verify = "The report (--report FILE) has every context with its call and its line.",
         .fix = "Mend what the findings about the first ones name, and run it again.",
         .fallback = true,
         .check = check}};

Outcome check(const snapshot::Run& run) {
  Outcome outcome;
  const std::vector<std::size_t> explained = strays_to_explain(run);
  if (explained.size() < kMostExplained) return outcome;
  Finding finding = finding_of(rule.value());
  for (std::size_t i = explained.back() + 1; i < run.contexts.size(); ++i)
    if (run.contexts[i].stray) finding.contexts.push_back(i);
  if (finding.contexts.empty()) return outcome;
  finding.title = fmt::format("the job made {} more stray contexts", finding.contexts.size());
  outcome.findings.push_back(std::move(finding));
  return outcome;
}

}  // namespace
}  // namespace corral::rules

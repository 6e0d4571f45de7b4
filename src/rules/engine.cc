// SPDX-License-Identifier: Apache-2.0
#include "rules/engine.h"

#include <algorithm>
#include <tuple>

#include "rules/expectation.h"

namespace corral::rules {
namespace {

void apply(const Rule& rule, snapshot::Run& run, Verdict& verdict) {
  Outcome outcome = rule.check(run);
  if (!outcome.not_checked.empty())
    verdict.not_checked.push_back({std::string(rule.id), outcome.not_checked});
  for (Finding& finding : outcome.findings) {
    for (const std::size_t at : finding.contexts)
      if (run.contexts[at].finding.empty()) run.contexts[at].finding = finding.id;
    verdict.findings.push_back(std::move(finding));
  }
}

}  // namespace

std::string_view name(Severity severity) {
  switch (severity) {
    case Severity::info:
      return "info";
    case Severity::warning:
      return "warning";
    case Severity::error:
      return "error";
  }
  return "";
}

Finding finding_of(const Rule& rule) {
  return {.id = std::string(rule.id),
          .severity = rule.severity,
          .gpu = {},
          .pid = {},
          .title = {},
          .evidence = {},
          .cause = std::string(rule.cause),
          .verify = std::string(rule.verify),
          .fix = std::string(rule.fix),
          .contexts = {}};
}

std::vector<const Rule*> all_rules() {
  std::vector<const Rule*> rules;
  for (auto* entry = Registered<Rule>::first(); entry; entry = entry->next())
    rules.push_back(&entry->value());
  std::ranges::sort(rules, {}, [](const Rule* rule) { return rule->id; });
  return rules;
}

Verdict judge(snapshot::Run& run) {
  Verdict verdict;
  verdict.not_checked = mark_strays(run);
  const std::vector<const Rule*> rules = all_rules();
  for (const bool fallback : {false, true})
    for (const Rule* rule : rules)
      if (rule->fallback == fallback) apply(*rule, run, verdict);
  std::ranges::stable_sort(verdict.findings, [](const Finding& a, const Finding& b) {
    return std::tuple(-static_cast<int>(a.severity), a.id, a.gpu, a.pid) <
           std::tuple(-static_cast<int>(b.severity), b.id, b.gpu, b.pid);
  });
  return verdict;
}

}  // namespace corral::rules

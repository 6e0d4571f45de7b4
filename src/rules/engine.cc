// SPDX-License-Identifier: Apache-2.0
#include "rules/engine.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <tuple>

#include "rules/expectation.h"

namespace corral::rules {
namespace {

std::vector<Finding> findings_of(const Rule& rule, const snapshot::Run& run, Verdict& verdict) {
  Outcome outcome = rule.check(run);
  if (!outcome.not_checked.empty())
    verdict.not_checked.push_back({std::string(rule.id), outcome.not_checked});
  return std::move(outcome.findings);
}

// Each context is left to the finding of the highest precedence; what the others say of it becomes
// a line of evidence there, and one that explains nothing any more is dropped.
void settle(std::vector<Finding>& findings, const snapshot::Run& run) {
  std::ranges::stable_sort(findings, std::ranges::greater{}, &Finding::precedence);
  std::vector<Finding*> owners(run.contexts.size(), nullptr);
  for (Finding& finding : findings) {
    if (finding.contexts.empty()) continue;
    std::erase_if(finding.contexts, [&](std::size_t at) {
      if (owners[at] == nullptr) {
        owners[at] = &finding;
        return false;
      }
      // What is true of every call on the default device is no other possibility.
      if (finding.precedence != Precedence::general)
        owners[at]->evidence.push_back("also possible: " + finding.cause + " [" + finding.id + "]");
      return true;
    });
    if (finding.contexts.empty()) finding.id.clear();
  }
  std::erase_if(findings, [](const Finding& finding) { return finding.id.empty(); });
}

void take(std::vector<Finding> findings, snapshot::Run& run, Verdict& verdict) {
  for (Finding& finding : findings) {
    for (const std::size_t at : finding.contexts) {
      run.contexts[at].finding = finding.id;
      if (finding.culprit) run.contexts[at].culprit = finding.culprit;
    }
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
          .contexts = {},
          .precedence = rule.precedence,
          .culprit = {}};
}

unsigned stray_count(const Verdict& verdict) {
  return static_cast<unsigned>(std::ranges::count_if(verdict.findings, [](const Finding& finding) {
    return finding.severity == Severity::error && finding.id.starts_with("stray.");
  }));
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
  std::vector<Finding> claims;
  for (const Rule* rule : rules)
    if (!rule->fallback)
      std::ranges::move(findings_of(*rule, run, verdict), std::back_inserter(claims));
  settle(claims, run);
  take(std::move(claims), run, verdict);
  for (const Rule* rule : rules)
    if (rule->fallback) take(findings_of(*rule, run, verdict), run, verdict);
  std::ranges::stable_sort(verdict.findings, [](const Finding& a, const Finding& b) {
    return std::tuple(-static_cast<int>(a.severity), a.id, a.gpu, a.pid) <
           std::tuple(-static_cast<int>(b.severity), b.id, b.gpu, b.pid);
  });
  return verdict;
}

}  // namespace corral::rules

// SPDX-License-Identifier: Apache-2.0
// A stray context that no other rule explains: says so, and shows where it came from.
#include <algorithm>
#include <iterator>

#include "rules/context_words.h"
#include "rules/rule.h"
#include "rules/stray_context.h"

namespace corral::rules {
namespace {

Outcome check(const snapshot::Run& run);

const Registered<Rule> rule{
    Rule{.id = "stray.unexplained",
         .severity = Severity::error,
         .summary = "a context on a GPU that the job was not given, of no known pattern",
         .cause = "Not known: nothing in the stack above is of a pattern that Corral knows.",
         .verify = "Read the calling line. Look for a device number, a default device or a loop "
                   "over all devices.",
         .fix = "Name the device in that call, or have the kernel refuse the other GPUs: "
                "corral run --gpus.",
         .fallback = true,
         .check = check}};

Outcome check(const snapshot::Run& run) {
  Outcome outcome;
  for (const std::size_t i : strays_to_explain(run)) {
    const snapshot::Context& context = run.contexts[i];
    if (!context.finding.empty()) continue;
    Finding finding = finding_of(rule.value());
    finding.gpu = context.gpu;
    finding.pid = context.pid;
    finding.title = stray_title(context);
    finding.evidence = {origin(context)};
    std::ranges::move(stack_words(context), std::back_inserter(finding.evidence));
    finding.contexts = {i};
    finding.fix = "Name the device in that call, or have the kernel refuse the other GPUs: " +
                  how_to_confine(run) + ".";
    outcome.findings.push_back(std::move(finding));
  }
  return outcome;
}

}  // namespace
}  // namespace corral::rules

// SPDX-License-Identifier: Apache-2.0
// A process whose CUDA_VISIBLE_DEVICES at cuInit was not the one it was given.
#include <fmt/format.h>

#include "base/text.h"
#include "rules/context_words.h"
#include "rules/rule.h"

namespace corral::rules {
namespace {

using snapshot::Context;
using snapshot::Init;
using snapshot::Run;

Outcome check(const Run& run);

const Registered<Rule> rule{Rule{
    .id = "stray.changed-variable",
    .severity = Severity::error,
    .summary = "the job replaced CUDA_VISIBLE_DEVICES before CUDA started",
    .cause = "The job itself, or a script that it runs, set CUDA_VISIBLE_DEVICES to something else "
             "than it was "
             "given. The driver reads the variable once, in cuInit, and obeyed the job's value.",
    .verify =
        "grep -rn CUDA_VISIBLE_DEVICES in the job's scripts, shell profiles and launch files.",
    .fix = "Remove the line that sets CUDA_VISIBLE_DEVICES, or run with a method that the kernel "
           "enforces "
           "(--enforce auto), which the variable cannot undo.",
    .check = check}};

const Init* init_of(const Run& run, pid_t pid) {
  const Init* last = nullptr;
  for (const Init& init : run.inits)
    if (init.pid == pid && init.result == 0) last = &init;
  return last;
}

Outcome check(const Run& run) {
  Outcome outcome;
  if (!run.confinement.visible_devices) return outcome;
  for (std::size_t i = 0; i < run.contexts.size(); ++i) {
    const Context& context = run.contexts[i];
    if (!context.stray) continue;
    const Init* init = init_of(run, context.pid);
    if (init == nullptr || init->visible_devices == run.confinement.visible_devices) continue;
    Finding finding = finding_of(rule.value());
    finding.gpu = context.gpu;
    finding.pid = context.pid;
    finding.title = stray_title(context);
    finding.evidence = {
        fmt::format("given CUDA_VISIBLE_DEVICES={}", *run.confinement.visible_devices),
        init->visible_devices
            ? fmt::format("at cuInit CUDA_VISIBLE_DEVICES={}", printable(*init->visible_devices))
            : "at cuInit CUDA_VISIBLE_DEVICES was not set",
        origin(context)};
    finding.contexts = {i};
    outcome.findings.push_back(std::move(finding));
  }
  return outcome;
}

}  // namespace
}  // namespace corral::rules

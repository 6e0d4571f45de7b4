// SPDX-License-Identifier: Apache-2.0
// Processes that outlived the job and were seen on a GPU.
#include <fmt/format.h>

#include "base/text.h"
#include "rules/rule.h"

namespace corral::rules {
namespace {

Outcome check(const snapshot::Run& run);

const Registered<Rule> rule{
    Rule{.id = "run.orphan",
         .severity = Severity::warning,
         .summary = "a process outlived the job and used a GPU",
         .cause = "The job started a process that did not end with it: a worker that was not "
                  "joined, or a server "
                  "meant to stay.",
         .verify = "ps -o pid,ppid,etime,cmd -p PID; nvidia-smi lists the pid with its memory.",
         .fix = "kill PID, if it is not meant to stay. It keeps the confinement of the job.",
         .check = check}};

Outcome check(const snapshot::Run& run) {
  Outcome outcome;
  for (const snapshot::Orphan& orphan : run.orphans) {
    if (orphan.gpus.empty()) continue;
    std::vector<std::string> gpus;
    for (const unsigned gpu : orphan.gpus) gpus.push_back(std::to_string(gpu));
    Finding finding = finding_of(rule.value());
    finding.pid = orphan.pid;
    finding.gpu = orphan.gpus.front();
    finding.title = fmt::format("{} (pid {}) outlived the job and was seen on GPU {}",
                                printable(orphan.process), orphan.pid, join_and(gpus));
    outcome.findings.push_back(std::move(finding));
  }
  return outcome;
}

}  // namespace
}  // namespace corral::rules

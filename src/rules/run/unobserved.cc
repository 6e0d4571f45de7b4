// SPDX-License-Identifier: Apache-2.0
// Processes of the job that used the driver without being seen: silence about them would be a false
// "clean".
#include <fmt/format.h>

#include "base/text.h"
#include "rules/rule.h"

namespace corral::rules {
namespace {

Outcome check(const snapshot::Run& run);

const Registered<Rule> rule{Rule{.id = "run.unobserved",
                                 .severity = Severity::warning,
                                 .summary = "a process of the job used the driver unseen by Corral",
                                 .cause = "The process reached the real driver without passing the "
                                          "observing library, so its contexts are "
                                          "known only from NVML's process list.",
                                 .verify = "grep libcuda /proc/PID/maps while it runs: the path is "
                                           "the driver's, not the run folder's.",
                                 .fix = "Let the process inherit LD_LIBRARY_PATH and open the "
                                        "driver as libcuda.so.1. What the kernel enforces "
                                        "holds for it all the same.",
                                 .check = check}};

Outcome check(const snapshot::Run& run) {
  Outcome outcome;
  for (const snapshot::Unobserved& process : run.coverage.unobserved) {
    Finding finding = finding_of(rule.value());
    finding.pid = process.pid;
    finding.title =
        fmt::format("{} (pid {}) was not observed", printable(process.process), process.pid);
    finding.evidence = {process.why};
    outcome.findings.push_back(std::move(finding));
  }
  return outcome;
}

}  // namespace
}  // namespace corral::rules

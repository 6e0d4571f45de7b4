// SPDX-License-Identifier: Apache-2.0
// Processes of the job that used the driver without being seen: silence about them would be a false
// "clean".
#include <fmt/format.h>

#include "base/text.h"
#include "rules/rule.h"

namespace corral::rules {
namespace {

Outcome check(const snapshot::Run& run);

const Registered<Rule> rule{Rule{
    .id = "run.unobserved",
    .severity = Severity::warning,
    .summary = "a process of the job used the driver unseen by Corral",
    .cause = "The process used the driver, but its calls did not reach this Corral's traces, for "
             "the reason above. Its contexts are known only from NVML's process list.",
    .verify =
        "While it runs: grep libcuda /proc/PID/maps; tr '\\0' '\\n' </proc/PID/environ | grep -E "
        "'LD_LIBRARY_PATH|CORRAL_TRACE_DIR'; prlimit -f -p PID.",
    .fix = "Let the process inherit LD_LIBRARY_PATH and CORRAL_TRACE_DIR, open the driver as "
           "libcuda.so.1, leave its file size limit alone, and run without a profiler that takes "
           "the driver's calls.",
    .check = check}};

Outcome check(const snapshot::Run& run) {
  Outcome outcome;
  for (const snapshot::Unobserved& process : run.coverage.unobserved) {
    Finding finding = finding_of(rule.value());
    finding.pid = process.pid;
    finding.title =
        fmt::format("{} (pid {}) was not observed", printable(process.process), process.pid);
    finding.evidence = {process.why};
    // Of a job that was only traced it would be a false comfort.
    if (run.confinement.enforced != "none")
      finding.fix += " What the kernel enforces holds for it all the same.";
    outcome.findings.push_back(std::move(finding));
  }
  return outcome;
}

}  // namespace
}  // namespace corral::rules

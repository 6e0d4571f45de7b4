// SPDX-License-Identifier: Apache-2.0
// Processes of other people on any GPU: its memory and power are not the job's alone.
#include <fmt/format.h>

#include "base/text.h"
#include "rules/rule.h"

namespace corral::rules {
namespace {

Outcome check(const snapshot::Run& run);

const Registered<Rule> rule{Rule{
    .id = "run.other-process",
    .severity = Severity::info,
    .summary = "a process that is not of this job used a GPU during the run",
    .cause =
        "Somebody else's process was on the GPU, so its memory and power are not this job's alone.",
    .verify = "nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv",
    .fix = "Nothing to mend in the job. Compare power and memory on a GPU that nobody else uses.",
    .check = check}};

Outcome check(const snapshot::Run& run) {
  Outcome outcome;
  for (const snapshot::GpuRun& gpu : run.gpus) {
    for (const snapshot::GpuProcess& process : gpu.processes) {
      if (process.of_job) continue;
      Finding finding = finding_of(rule.value());
      finding.gpu = gpu.gpu.index;
      finding.pid = process.pid;
      finding.title =
          fmt::format("pid {} ({}), not of this job, was on GPU {}", process.pid,
                      process.command.empty() ? "command not readable" : printable(process.command),
                      gpu.gpu.index);
      if (process.memory_bytes)
        finding.evidence.push_back(fmt::format("{} MiB", *process.memory_bytes >> 20));
      outcome.findings.push_back(std::move(finding));
    }
  }
  return outcome;
}

}  // namespace
}  // namespace corral::rules

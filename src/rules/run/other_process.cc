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

constexpr std::string_view kServer = "nvidia-cuda-mps-server";

bool is_server(const snapshot::GpuProcess& process) { return process.command.starts_with(kServer); }

// The server of the job's own daemon is where its contexts are.
bool is_expected(const snapshot::Run& run, const snapshot::GpuRun& gpu,
                 const snapshot::GpuProcess& process) {
  return is_server(process) && run.mps && run.mps->gpu == gpu.gpu.index;
}

std::string title(const snapshot::GpuProcess& process, unsigned gpu) {
  if (is_server(process))
    return fmt::format(
        "an MPS server, pid {}, was on GPU {}: it opens every GPU that its daemon "
        "was given",
        process.pid, gpu);
  return fmt::format("pid {} ({}), not of this job, was on GPU {}", process.pid,
                     process.command.empty() ? "command not readable" : printable(process.command),
                     gpu);
}

Outcome check(const snapshot::Run& run) {
  Outcome outcome;
  for (const snapshot::GpuRun& gpu : run.gpus) {
    for (const snapshot::GpuProcess& process : gpu.processes) {
      if (process.of_job || is_expected(run, gpu, process)) continue;
      Finding finding = finding_of(rule.value());
      finding.gpu = gpu.gpu.index;
      finding.pid = process.pid;
      finding.title = title(process, gpu.gpu.index);
      if (process.memory_bytes)
        finding.evidence.push_back(fmt::format("{} MiB", *process.memory_bytes >> 20));
      outcome.findings.push_back(std::move(finding));
    }
  }
  return outcome;
}

}  // namespace
}  // namespace corral::rules

// SPDX-License-Identifier: Apache-2.0
// A process of the job on a GPU that was not given, by NVML's list alone: its context was not
// observed.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "rules/context_words.h"
#include "rules/rule.h"

namespace corral::rules {
namespace {

Outcome check(const snapshot::Run& run);

const Registered<Rule> rule{Rule{
    .id = "stray.listed-process",
    .severity = Severity::error,
    .summary = "a process of the job was listed on a GPU that the job was not given",
    .cause = "Not known: the process made its context without being observed, so no call and no "
             "line was "
             "recorded.",
    .verify = "nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv",
    .fix = "Let the process be observed (see run.unobserved), or have the kernel refuse the other "
           "GPUs: corral run --gpus.",
    .check = check}};

Outcome check(const snapshot::Run& run) {
  Outcome outcome;
  for (const snapshot::GpuRun& gpu : run.gpus) {
    if (!snapshot::is_outside(run, gpu)) continue;
    for (const snapshot::GpuProcess& process : gpu.processes) {
      const bool observed = std::ranges::any_of(run.contexts, [&](const snapshot::Context& c) {
        return c.pid == process.pid && c.gpu == gpu.gpu.index && !c.denied;
      });
      if (!process.of_job || observed) continue;
      Finding finding = finding_of(rule.value());
      finding.gpu = gpu.gpu.index;
      finding.pid = process.pid;
      finding.title = fmt::format("{} (pid {}) was on GPU {}", printable(process.command),
                                  process.pid, gpu.gpu.index);
      if (process.memory_bytes)
        finding.evidence.push_back(fmt::format("{} MiB by NVML", *process.memory_bytes >> 20));
      finding.fix =
          "Let the process be observed (see run.unobserved), or have the kernel refuse the other "
          "GPUs: " +
          how_to_confine(run) + ".";
      outcome.findings.push_back(std::move(finding));
    }
  }
  return outcome;
}

}  // namespace
}  // namespace corral::rules

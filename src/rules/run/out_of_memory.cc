// SPDX-License-Identifier: Apache-2.0
// A job that failed, and whose last wish for memory the driver refused.
#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

#include "base/text.h"
#include "rules/memory_words.h"
#include "rules/rule.h"

namespace corral::rules {
namespace {

using snapshot::GpuRun;
using snapshot::Run;
using snapshot::Shortage;

Outcome check(const Run& run);

const Registered<Rule> rule{Rule{
    .id = "run.out-of-memory",
    .severity = Severity::info,
    .summary = "a job that failed was refused memory on its GPU",
    .cause = "The GPU had too little memory left for what the process asked for. What it held and "
             "what others held stands above.",
    .verify = "nvidia-smi --query-gpu=memory.used,memory.total --format=csv -l 1 while it runs; "
              "PyTorch: torch.cuda.memory_summary() where the error is caught.",
    .fix = "Less at a time (batch, sequence length), a GPU with more memory, or one that nobody "
           "else uses. Where much is reserved and not allocated: --torch-alloc "
           "expandable_segments:True.",
    .check = check}};

std::string others_on(const GpuRun& gpu) {
  std::uint64_t bytes = 0;
  unsigned count = 0;
  for (const snapshot::GpuProcess& process : gpu.processes) {
    if (process.of_job) continue;
    ++count;
    bytes += process.memory_bytes.value_or(0);
  }
  if (count == 0) return "";
  return fmt::format("{} process{} not of this job {} on GPU {}, with {}", count,
                     count == 1 ? "" : "es", count == 1 ? "was" : "were", gpu.gpu.index,
                     bytes == 0 ? "an amount that is not known" : memory_text(bytes));
}

Finding finding_for(const Run& run, const Shortage& shortage) {
  const GpuRun& gpu = run.gpus[*shortage.gpu];
  Finding finding = finding_of(rule.value());
  finding.pid = shortage.pid;
  finding.gpu = shortage.gpu;
  finding.title = fmt::format(
      "pid {} was refused {} on GPU {}{}: it held {}{}", shortage.pid, memory_text(shortage.bytes),
      gpu.gpu.index, place_text(shortage.culprit), memory_text(shortage.held_bytes),
      gpu.gpu.memory_total_bytes ? fmt::format(" of {}", memory_text(*gpu.gpu.memory_total_bytes))
                                 : "");
  finding.evidence.push_back(fmt::format("{} answered 2 (out of memory) at {:.1f} s, {} in a row",
                                         printable(shortage.call), shortage.time_s,
                                         shortage.failures));
  if (std::string others = others_on(gpu); !others.empty())
    finding.evidence.push_back(std::move(others));
  finding.evidence.emplace_back("whether that is why the job failed is not known");
  return finding;
}

Outcome check(const Run& run) {
  Outcome outcome;
  if (run.exit.code == 0) return outcome;
  std::map<std::pair<pid_t, unsigned>, const Shortage*> last;
  for (const Shortage& shortage : run.shortages)
    if (shortage.gpu && *shortage.gpu < run.gpus.size())
      last[{shortage.pid, *shortage.gpu}] = &shortage;
  for (const auto& [who, shortage] : last)
    if (!shortage->given_back_bytes) outcome.findings.push_back(finding_for(run, *shortage));
  return outcome;
}

}  // namespace
}  // namespace corral::rules

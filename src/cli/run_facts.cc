// SPDX-License-Identifier: Apache-2.0
#include "cli/run_facts.h"

#include <sys/wait.h>

#include <algorithm>
#include <set>

#include "cli/version.h"
#include "host/proc.h"

namespace corral::cli {

snapshot::Run planned_run(const gpu::Inventory& inventory, const isolate::Plan& plan,
                          const isolate::Selection& allowed,
                          const std::vector<std::string>& command) {
  snapshot::Run run;
  run.version = kVersion;
  run.simulated = inventory.simulated;
  run.command = command;
  // Without a GPU there is nothing that a missing driver or NVML would keep from the verdict.
  if (!inventory.gpus.empty()) run.notes = inventory.notes;
  run.notes.insert(run.notes.end(), plan.notes.begin(), plan.notes.end());
  run.confinement = {.enforced = plan.enforced,
                     .layers = isolate::layer_texts(plan),
                     .requested = allowed.requested,
                     .nothing_to_refuse = plan.refused.empty(),
                     .tight = plan.tight,
                     .as_root = plan.as_root,
                     .visible_devices = {},
                     .refused = {},
                     .not_covered = plan.not_covered,
                     .general_limits = plan.general_limits};
  for (const isolate::Setting& setting : plan.environment)
    if (setting.name == "CUDA_VISIBLE_DEVICES") run.confinement.visible_devices = setting.value;
  if (plan.enforced != "none")
    for (const isolate::RefusedNode& node : plan.refused)
      if (isolate::is_held(plan, node)) run.confinement.refused.push_back(node.node.path);
  for (const gpu::Gpu& gpu : inventory.gpus) {
    snapshot::GpuRun entry;
    entry.gpu = gpu;
    entry.allowed =
        !allowed.requested || std::ranges::find(allowed.gpus, gpu.index) != allowed.gpus.end();
    run.gpus.push_back(std::move(entry));
  }
  return run;
}

void add_end(const launch::JobEnd& end, std::int64_t start_ns, std::int64_t end_ns,
             snapshot::Run& run) {
  if (WIFEXITED(end.wait_status)) run.exit.code = WEXITSTATUS(end.wait_status);
  if (WIFSIGNALED(end.wait_status)) run.exit.signal = WTERMSIG(end.wait_status);
  run.duration_s = static_cast<double>(end_ns - start_ns) / 1e9;
}

void add_samples(sample::Sampled sampled, snapshot::Run& run) {
  for (sample::GpuSamples& samples : sampled.gpus) {
    if (samples.gpu >= run.gpus.size()) continue;
    snapshot::GpuRun& gpu = run.gpus[samples.gpu];
    sample::hand_over(std::move(samples), gpu);
  }
  run.notes.insert(run.notes.end(), sampled.notes.begin(), sampled.notes.end());
  run.remarks.insert(run.remarks.end(), sampled.remarks.begin(), sampled.remarks.end());
}

void add_processes(const std::vector<launch::SeenProcess>& seen,
                   const std::vector<trace::ProcessTrace>& traces, snapshot::Run& run) {
  std::set<std::pair<pid_t, std::uint64_t>> observed;
  for (const trace::ProcessTrace& trace : traces)
    observed.insert({static_cast<pid_t>(trace.pid), trace.start_time_ticks.value_or(0)});
  for (const launch::SeenProcess& process : seen) {
    if (observed.contains({process.pid, process.start_ticks})) continue;
    if (process.maps_shim && process.unobserved_why.empty())
      observed.insert({process.pid, process.start_ticks});
    if (!process.unobserved_why.empty())
      run.coverage.unobserved.push_back({process.pid, process.command, process.unobserved_why});
  }
  run.coverage.observed = static_cast<unsigned>(observed.size());
  run.coverage.processes = static_cast<unsigned>(observed.size() + run.coverage.unobserved.size());
}

void add_orphans(const std::vector<pid_t>& pids, snapshot::Run& run) {
  for (const pid_t pid : pids) {
    snapshot::Orphan orphan{.pid = pid, .process = {}, .gpus = {}};
    orphan.process = host::describe_process(host::Root(), pid).value_or("");
    for (const snapshot::GpuRun& gpu : run.gpus)
      for (const snapshot::GpuProcess& process : gpu.processes)
        if (process.pid == pid) orphan.gpus.push_back(gpu.gpu.index);
    run.orphans.push_back(std::move(orphan));
  }
}

}  // namespace corral::cli

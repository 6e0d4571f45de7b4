// SPDX-License-Identifier: Apache-2.0
#include "cli/run_facts.h"

#include <sys/wait.h>

#include <algorithm>
#include <set>

#include "cli/version.h"
#include "host/number_list.h"
#include "host/proc.h"

namespace corral::cli {

namespace {

snapshot::HeldLimit held_limit(const isolate::Limit& limit) {
  const bool set =
      limit.way != isolate::LimitWay::simulated && limit.way != isolate::LimitWay::by_hand;
  snapshot::HeldLimit held{.name = std::string(isolate::limit_name(limit.kind)),
                           .text = isolate::limit_text(limit),
                           .list = host::number_list_text(limit.numbers),
                           .amount = limit.amount,
                           .why = limit.why,
                           .held_by = {},
                           .job_can_change = !set || limit.job_can_leave};
  if (set) held.held_by = isolate::limit_holder(limit);
  return held;
}

snapshot::Around around(const isolate::Around& from) {
  return {.kind = std::string(host::kind_name(from.place.kind)),
          .name = from.place.name,
          .evidence = from.place.evidence,
          .given_by = from.given_by,
          .given_count = from.given_count,
          .held = from.held,
          .text = from.text};
}

}  // namespace

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
                     .open_ways = plan.open_ways,
                     .general_limits = plan.general_limits,
                     .limits = {}};
  for (const isolate::Limit& limit : plan.limits)
    run.confinement.limits.push_back(held_limit(limit));
  for (const isolate::Around& one : plan.around) run.confinement.around.push_back(around(one));
  for (const isolate::Advice& one : plan.advice)
    run.confinement.advice.push_back(
        {.what = one.what, .instead = one.instead, .leaves = one.leaves});
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

namespace {

bool lists_of_job(const snapshot::GpuRun& gpu, pid_t pid) {
  return std::ranges::any_of(gpu.processes, [&](const snapshot::GpuProcess& process) {
    return process.of_job && process.pid == pid;
  });
}

bool tells_anything(const trace::ProcessTrace& trace) {
  return !trace.inits.empty() || !trace.contexts.empty() || !trace.allocations.empty();
}

// A process that has the shim and says nothing, while NVML lists it on a GPU: its calls took
// another way. Empty: nothing says so.
std::string went_past(const launch::SeenProcess& process, const snapshot::Run& run) {
  const bool listed = std::ranges::any_of(
      run.gpus, [&](const snapshot::GpuRun& gpu) { return lists_of_job(gpu, process.pid); });
  if (!process.maps_shim || !listed) return "";
  return process.injection.empty() ? "its calls of the driver did not come through the shim"
                                   : "its calls of the driver went through " + process.injection +
                                         ", a profiler's, and not through the shim";
}

}  // namespace

void add_processes(const std::vector<launch::SeenProcess>& seen,
                   const std::vector<trace::ProcessTrace>& traces, snapshot::Run& run) {
  std::set<std::pair<pid_t, std::uint64_t>> observed;
  for (const trace::ProcessTrace& trace : traces)
    if (tells_anything(trace))
      observed.insert({static_cast<pid_t>(trace.pid), trace.start_time_ticks.value_or(0)});
  for (const launch::SeenProcess& process : seen) {
    if (observed.contains({process.pid, process.start_ticks})) continue;
    const std::string why =
        process.unobserved_why.empty() ? went_past(process, run) : process.unobserved_why;
    if (!why.empty())
      run.coverage.unobserved.push_back({process.pid, process.command, why});
    else if (process.maps_shim)
      observed.insert({process.pid, process.start_ticks});
  }
  // Where somebody unseen is, no context seen is not no context.
  for (snapshot::GpuRun& gpu : run.gpus)
    for (const snapshot::Unobserved& process : run.coverage.unobserved)
      if (gpu.contexts == 0U && lists_of_job(gpu, process.pid)) gpu.contexts.reset();
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

// SPDX-License-Identifier: Apache-2.0
#include "report/run_summary.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>

#include "sample/summary.h"

namespace corral::report {

namespace {

std::optional<double> power_before_w(const snapshot::Run& run,
                                     const std::vector<snapshot::Sample>& samples) {
  const snapshot::Sample& first = samples.front();
  const auto made_by_then = [&](const snapshot::Context& c) { return c.time_s <= first.time_s; };
  if (first.time_s > 0 &&
      (first.time_s > kStillBeforeS || std::ranges::any_of(run.contexts, made_by_then)))
    return std::nullopt;
  const sample::Summary before =
      sample::summarize(samples, first.time_s, std::max(first.time_s, 0.0));
  if (!before.power_w) return std::nullopt;
  return before.power_w->mean;
}

}  // namespace

GpuNumbers numbers(const snapshot::Run& run, const snapshot::GpuRun& gpu) {
  GpuNumbers out;
  if (gpu.samples.empty()) return out;
  out.power_before_w = power_before_w(run, gpu.samples);
  const sample::Summary during =
      sample::summarize(gpu.samples, 0, std::max(gpu.samples.back().time_s, 0.0));
  if (during.memory_used_bytes) {
    out.memory_min_bytes = during.memory_used_bytes->min;
    out.memory_max_bytes = during.memory_used_bytes->max;
  }
  if (during.power_w) out.power_mean_w = during.power_w->mean;
  if (during.sm_clock_mhz) out.sm_clock_mean_mhz = during.sm_clock_mhz->mean;
  return out;
}

std::optional<std::uint64_t> unexplained_peak_bytes(const snapshot::GpuProcess& process) {
  if (!process.memory_bytes || !process.allocated_peak_bytes ||
      *process.memory_bytes < *process.allocated_peak_bytes)
    return std::nullopt;
  return *process.memory_bytes - *process.allocated_peak_bytes;
}

JobMemory job_memory(const snapshot::Run& run, const snapshot::GpuRun& gpu) {
  const auto listed = [&](pid_t pid) {
    return std::ranges::find(gpu.processes, pid, &snapshot::GpuProcess::pid) != gpu.processes.end();
  };
  if (gpu.process_list_known != true || !gpu.contexts) return {};
  for (const snapshot::Context& context : run.contexts)
    if (context.gpu == gpu.gpu.index && !context.denied && !listed(context.pid)) return {};
  JobMemory sum{.allocated_peak_bytes = 0, .unexplained_peak_bytes = 0};
  const auto add = [](std::optional<std::uint64_t>& to, std::optional<std::uint64_t> bytes) {
    to = to && bytes ? std::optional(*to + *bytes) : std::nullopt;
  };
  for (const snapshot::GpuProcess& process : gpu.processes) {
    if (!process.of_job) continue;
    add(sum.allocated_peak_bytes, process.allocated_peak_bytes);
    add(sum.unexplained_peak_bytes, unexplained_peak_bytes(process));
  }
  return sum;
}

std::optional<bool> touched(const snapshot::Run& run, const snapshot::GpuRun& gpu) {
  if (gpu.contexts && *gpu.contexts > 0) return true;
  for (const snapshot::GpuProcess& process : gpu.processes)
    if (process.of_job) return true;
  const bool refused =
      run.confinement.enforced != "none" && run.confinement.requested && !gpu.allowed;
  const bool all_observed = gpu.contexts && run.coverage.unobserved.empty();
  if (refused || all_observed) return false;
  return std::nullopt;
}

std::string exit_words(const snapshot::Exit& exit) {
  if (exit.code) return fmt::format("ended with {}", *exit.code);
  if (!exit.signal) return "ended in a way that is not known";
  const char* abbreviation = ::sigabbrev_np(*exit.signal);
  if (abbreviation == nullptr) return fmt::format("was ended by signal {}", *exit.signal);
  return fmt::format("was ended by SIG{} (signal {})", abbreviation, *exit.signal);
}

}  // namespace corral::report

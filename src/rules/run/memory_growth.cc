// SPDX-License-Identifier: Apache-2.0
// Memory that keeps rising. Judged by what is never given back: the low level of each of six equal
// stretches of the last two thirds of the run. The first third is warm-up; a low level does not see
// the teeth of a saw; and a jump or a rise that comes to rest has stretches in which nothing rises.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rules/memory_words.h"
#include "rules/rule.h"

namespace corral::rules {
namespace {

using snapshot::GpuRun;
using snapshot::Run;
using snapshot::Sample;

Outcome check(const Run& run);

const Registered<Rule> rule{Rule{
    .id = "run.memory-growth",
    .severity = Severity::warning,
    .summary = "the memory of the job's GPU rose steadily through the last two thirds of the run",
    .cause = "Something grows with time: tensors that are kept (a loss that is summed with its "
             "graph, a list of outputs), a cache of freed blocks or of compiled code because "
             "shapes vary, or work that grows itself. JAX and TensorFlow take most of the GPU at "
             "once unless told otherwise; in them no growth shows.",
    .verify = "nvidia-smi --query-gpu=memory.used --format=csv -l 10 while it runs. PyTorch: when "
              "torch.cuda.memory_allocated() rises, tensors are kept; when only "
              "torch.cuda.memory_reserved() does, the cache grows.",
    .fix = "Kept tensors: .item() or .detach() for what is only logged, no lists of outputs on the "
           "GPU. A cache: fewer different shapes, or corral run --torch-alloc "
           "expandable_segments:True,roundup_power2_divisions:4.",
    .check = check}};

constexpr double kLeastSeconds = 60;
constexpr std::size_t kStretches = 6;
constexpr std::size_t kLeastSamples = 5;  // in each stretch
constexpr std::uint64_t kLeastRise = 64ULL << 20;
constexpr double kLeastRiseShare = 0.02;  // of the first level

struct Growth {
  std::array<std::uint64_t, kStretches> levels{};
  double from_s = 0;  // the middle of the first stretch
  double to_s = 0;    // of the last
};

// A fifth from below and not the lowest: the last readings may be of a job that is ending and has
// given its memory back.
std::uint64_t low_level(std::vector<std::uint64_t>& readings) {
  const auto at = readings.begin() + static_cast<std::ptrdiff_t>(readings.size() / 5);
  std::ranges::nth_element(readings, at);
  return *at;
}

std::optional<Growth> levels_of(const GpuRun& gpu, double duration_s) {
  const double begin_s = duration_s / 3;
  const double stretch_s = (duration_s - begin_s) / kStretches;
  std::array<std::vector<std::uint64_t>, kStretches> readings;
  for (const Sample& sample : gpu.samples) {
    if (sample.time_s < begin_s || sample.time_s >= duration_s || !sample.memory_used_bytes)
      continue;
    const auto stretch = static_cast<std::size_t>((sample.time_s - begin_s) / stretch_s);
    readings[std::min(stretch, kStretches - 1)].push_back(*sample.memory_used_bytes);
  }
  Growth growth{
      .levels = {}, .from_s = begin_s + stretch_s / 2, .to_s = duration_s - stretch_s / 2};
  for (std::size_t i = 0; i < kStretches; ++i) {
    if (readings[i].size() < kLeastSamples) return std::nullopt;
    growth.levels[i] = low_level(readings[i]);
  }
  return growth;
}

bool keeps_rising(const Growth& growth) {
  const auto& levels = growth.levels;
  if (levels.back() <= levels.front()) return false;
  const auto rise = static_cast<double>(levels.back() - levels.front());
  if (rise < kLeastRise || rise < kLeastRiseShare * static_cast<double>(levels.front()))
    return false;
  const double small = rise / 20;
  std::size_t rising = 0;
  double step = 0;
  for (std::size_t i = 1; i < kStretches; ++i) {
    step = static_cast<double>(levels[i]) - static_cast<double>(levels[i - 1]);
    if (step < -small || step > 0.6 * rise) return false;
    if (step >= small) ++rising;
  }
  const double later = static_cast<double>(levels.back()) - static_cast<double>(levels[2]);
  return rising >= kStretches - 2 && step >= small && later >= 0.4 * rise;
}

bool has_job(const GpuRun& gpu) {
  return gpu.contexts.value_or(0) > 0 ||
         std::ranges::any_of(gpu.processes, &snapshot::GpuProcess::of_job);
}

// Whether a process of the job came to the GPU after the warm-up: each brings memory of its own.
bool has_newcomer(const Run& run, const GpuRun& gpu) {
  std::map<pid_t, double> first_s;
  for (const snapshot::Context& context : run.contexts) {
    if (context.gpu != gpu.gpu.index || context.denied) continue;
    const auto [at, fresh] = first_s.try_emplace(context.pid, context.time_s);
    if (!fresh) at->second = std::min(at->second, context.time_s);
  }
  return std::ranges::any_of(
      first_s, [&](const auto& process) { return process.second > run.duration_s / 3; });
}

// Why the rise may be of something else than growth; empty: nothing speaks for that.
std::string doubt(const Run& run, const GpuRun& gpu) {
  if (!std::ranges::all_of(gpu.processes, &snapshot::GpuProcess::of_job))
    return fmt::format("the memory of GPU {} rose, and a process that is not of this job was there",
                       gpu.gpu.index);
  if (has_newcomer(run, gpu))
    return fmt::format("the memory of GPU {} rose, and processes of the job came to it meanwhile",
                       gpu.gpu.index);
  if (gpu.process_list_known != true)
    return fmt::format("the memory of GPU {} rose, and who was there is not known", gpu.gpu.index);
  return "";
}

Finding finding_for(const GpuRun& gpu, const Growth& growth) {
  const std::uint64_t from = growth.levels.front();
  const std::uint64_t to = growth.levels.back();
  const double per_hour = static_cast<double>(to - from) / (growth.to_s - growth.from_s) * 3600;
  Finding finding = finding_of(rule.value());
  finding.gpu = gpu.gpu.index;
  finding.title =
      fmt::format("the job's memory on GPU {} kept rising: from {} at {:.0f} s to {} at {:.0f} s",
                  gpu.gpu.index, memory_text(from), growth.from_s, memory_text(to), growth.to_s);
  std::vector<std::string> levels;
  for (const std::uint64_t level : growth.levels) levels.push_back(memory_text(level));
  finding.evidence.push_back(
      fmt::format("low levels of six stretches: {}", fmt::join(levels, ", ")));
  std::string rate = fmt::format("{} an hour", memory_text(static_cast<std::uint64_t>(per_hour)));
  if (gpu.gpu.memory_total_bytes && *gpu.gpu.memory_total_bytes > to)
    rate += fmt::format("; at that the GPU is full in {:.1f} hours",
                        static_cast<double>(*gpu.gpu.memory_total_bytes - to) / per_hour);
  finding.evidence.push_back(std::move(rate));
  return finding;
}

Outcome check(const Run& run) {
  Outcome outcome;
  if (run.duration_s < kLeastSeconds) return outcome;
  for (const GpuRun& gpu : run.gpus) {
    if (!has_job(gpu)) continue;
    const auto growth = levels_of(gpu, run.duration_s);
    if (!growth || !keeps_rising(*growth)) continue;
    const std::string why = doubt(run, gpu);
    if (why.empty())
      outcome.findings.push_back(finding_for(gpu, *growth));
    else
      outcome.not_checked = why;
  }
  return outcome;
}

}  // namespace
}  // namespace corral::rules

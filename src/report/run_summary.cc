// SPDX-License-Identifier: Apache-2.0
#include "report/run_summary.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>

namespace corral::report {
namespace {

// Mean of what was read; unread values do not count as zero.
class Mean {
 public:
  template <class Number>
  void add(const std::optional<Number>& value) {
    if (!value) return;
    sum_ += static_cast<double>(*value);
    ++count_;
  }
  std::optional<double> value() const {
    if (count_ == 0) return std::nullopt;
    return sum_ / count_;
  }

 private:
  double sum_ = 0;
  int count_ = 0;
};

}  // namespace

GpuNumbers numbers(const snapshot::GpuRun& gpu) {
  GpuNumbers out;
  Mean power;
  Mean clock;
  for (const snapshot::Sample& sample : gpu.samples) {
    if (sample.time_s < 0) {
      if (sample.power_w) out.power_before_w = sample.power_w;
      continue;
    }
    power.add(sample.power_w);
    clock.add(sample.sm_clock_mhz);
    if (const auto memory = sample.memory_used_bytes) {
      out.memory_min_bytes = std::min(out.memory_min_bytes.value_or(*memory), *memory);
      out.memory_max_bytes = std::max(out.memory_max_bytes.value_or(*memory), *memory);
    }
  }
  out.power_mean_w = power.value();
  out.sm_clock_mean_mhz = clock.value();
  return out;
}

std::optional<bool> touched(const snapshot::Run& run, const snapshot::GpuRun& gpu) {
  if (gpu.contexts && *gpu.contexts > 0) return true;
  for (const snapshot::GpuProcess& process : gpu.processes)
    if (process.of_job) return true;
  const bool all_observed = gpu.contexts && run.coverage.unobserved.empty();
  if (gpu.process_list_known == true || all_observed) return false;
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

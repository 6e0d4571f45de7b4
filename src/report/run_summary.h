// SPDX-License-Identifier: Apache-2.0
// The numbers of one GPU over a run that both reports show.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "snapshot/run.h"

namespace corral::report {

struct GpuNumbers {
  std::optional<std::uint64_t> memory_min_bytes;
  std::optional<std::uint64_t> memory_max_bytes;
  std::optional<double> power_before_w;
  std::optional<double> power_mean_w;
  std::optional<double> sm_clock_mean_mhz;
};

// A first reading that was taken by then shows the GPU as it was before the job: cuInit takes 80 ms
// and more, and the context after it another 105 (H200, driver 580.159).
inline constexpr double kStillBeforeS = 0.1;

// Minimum, maximum and mean over the samples of the job's time (time_s >= 0). "Before" is the mean
// of the earlier ones; without any it is the first sample, when that was taken by kStillBeforeS and
// before the job's first context on any GPU.
GpuNumbers numbers(const snapshot::Run& run, const snapshot::GpuRun& gpu);

// NVML's peak of a process less its own allocations: its context, modules, pools that the driver
// keeps, and whatever no call explains. Unknown where either is, and where the readings, one a
// second, missed the time of the most allocations.
std::optional<std::uint64_t> unexplained_peak_bytes(const snapshot::GpuProcess& process);

// Both numbers summed over the job's processes on a GPU, each at its own peak; unknown when one is
// unknown, or when a process with a context was not listed.
struct JobMemory {
  std::optional<std::uint64_t> allocated_peak_bytes;
  std::optional<std::uint64_t> unexplained_peak_bytes;
};
JobMemory job_memory(const snapshot::Run& run, const snapshot::GpuRun& gpu);

// Whether the job used this GPU: yes by a context in the traces or a process of the job in NVML's
// list. No where the kernel refused it, or where every process was observed. That NVML, asked once
// a second, listed no process of the job is no evidence: nullopt.
std::optional<bool> touched(const snapshot::Run& run, const snapshot::GpuRun& gpu);

// "ended with 0", "was ended by SIGKILL (signal 9)".
std::string exit_words(const snapshot::Exit& exit);

}  // namespace corral::report

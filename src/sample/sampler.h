// SPDX-License-Identifier: Apache-2.0
// Reads every GPU in a thread of its own while a job runs: memory, power and clock fast, process
// lists slowly.
//
// The thread opens NVML itself. Two H200 take 14 ms for that and as long again for their handles
// (driver 580.159), and a job that is started in the meantime does not wait for them. The first
// reading then comes some 45 ms after the job's start and still shows the GPUs as they were before
// it: cuInit alone takes 80 ms and more, and only after it a job can have a context.
// (report/run_summary says up to when a first reading is taken for that.) The job must be started
// before the thread is: NVML opens GPU nodes without close-on-exec, and a fork beside a thread in
// dlopen asks for trouble.
//
// NVML calls can hang (a lost GPU, a driver bug), and so can /proc/PID of a process that hangs in
// the driver. The thread may then never come back: nobody waits for it without a limit, it holds no
// lock while it reads, and everything that it touches is shared with it and outlives us. A program
// that has left it behind must end with _exit(2): exit(3) would wait for a dlopen that is under way
// and then take NVML down under the thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/device.h"
#include "gpu/nvml.h"
#include "host/proc.h"
#include "host/root.h"
#include "snapshot/run.h"

namespace corral::sample {

struct Options {
  std::chrono::nanoseconds fast_interval = std::chrono::milliseconds(100);
  std::chrono::nanoseconds slow_interval = std::chrono::seconds(1);
  // How long before() and stop() wait for an NVML that does not answer. stop() waits only for one
  // that has answered before.
  std::chrono::nanoseconds patience = std::chrono::seconds(2);
  // A GPU's process is the job's when it descends from this one (Corral, a subreaper); 0: none is.
  pid_t job_ancestor = 0;
  // Processes below the ancestor that were there before the job: neither they nor theirs are its.
  std::vector<host::ProcessStat> not_of_job = {};
  // Stretches kept per GPU, about 150 bytes each: 10 minutes at full resolution, then it is halved.
  std::size_t history_limit = 6000;
  // Where processes are looked up. Not the simulated machine's root: its processes are real.
  host::Root processes;
};

struct GpuSamples {
  unsigned gpu = 0;                       // index in the inventory
  std::vector<snapshot::Sample> samples;  // in order of time; before the start they are negative
  std::vector<snapshot::GpuProcess> processes;  // each with the most memory that it was seen with
  std::optional<std::uint64_t> job_memory_peak_bytes;  // at one moment, of all the job's processes
  std::optional<bool> process_list_known;              // false: not given, or of pids not seen here
  std::optional<std::uint64_t> memory_total_bytes;     // of the GPU
  std::string state;                                   // as GpuRun::state
};

struct Sampled {
  std::vector<GpuSamples> gpus;    // one for each GPU of the inventory, in its order
  std::vector<std::string> notes;  // "GPU 0: power: not supported"
  // Of no interest unless somebody asks: the job was over before its GPUs were read.
  std::vector<std::string> remarks;
};

class Sampler {
 public:
  // `nvml` is called in the thread. It may be null: then nothing is sampled and every GPU's state
  // says so, as it does when NVML cannot be opened, with a note of why.
  Sampler(gpu::NvmlOpener nvml, const gpu::Inventory& inventory, Options options);
  // Stops as stop() does.
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Starts the thread, which opens NVML after `delay` and takes its first readings; every signal is
  // blocked in it and in the threads that NVML makes. Once. Without a GPU there is nothing to read
  // and no thread.
  void start(std::chrono::nanoseconds delay = {});

  // start(), then waits until every GPU has been read once, at most Options::patience; false: NVML
  // has not answered. For values from before the job where NVML is open already.
  bool before();

  // Ends the thread after one more reading, waiting at most Options::patience, and hands the
  // readings over. A thread that has not read every GPU once is not waited for: a job of a few
  // milliseconds does not get longer by NVML. `start_ns` is the monotonic time of the job's start,
  // which becomes second 0.
  Sampled stop(std::int64_t start_ns);

 private:
  struct Shared;

  enum class Ending { complete, not_answering, too_short };
  Ending finish();

  std::shared_ptr<Shared> shared_;
};

// Puts one GPU's readings into the run's.
void hand_over(GpuSamples samples, snapshot::GpuRun& run);

}  // namespace corral::sample

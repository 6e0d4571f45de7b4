// SPDX-License-Identifier: Apache-2.0
// Who is on a GPU: joins NVML's process lists with /proc over a run.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpu/nvml.h"
#include "host/proc.h"
#include "host/root.h"
#include "snapshot/run.h"

namespace corral::sample {

// Looks processes up, each once: a pid with its start time stays the same process.
class ProcessBook {
 public:
  struct Entry {
    std::uint64_t start_ticks = 0;
    std::string command;  // empty when it may not be read
    bool of_job = false;
  };

  // `job_ancestor`, `not_of_job`: see Options. `pids_are_ours`: NVML's pids are known to be those
  // of `root`, as on the simulated machine; else that is so in the machine's outermost pid
  // namespace.
  ProcessBook(host::Root root, pid_t job_ancestor, std::vector<host::ProcessStat> not_of_job,
              bool pids_are_ours);

  // nullopt: there is no such process (any more) here.
  std::optional<Entry> find(pid_t pid);

  // Whether NVML's lists are evidence, an empty one too. In a container they hold the host's pids
  // or nothing; they are believed there once they name processes of ours and no others.
  bool believable() const;

 private:
  bool descends_from_ancestor(pid_t pid) const;
  bool uses_driver(pid_t pid) const;

  host::Root root_;
  pid_t job_ancestor_;
  std::vector<host::ProcessStat> not_of_job_;
  bool pids_are_ours_;
  std::map<pid_t, Entry> entries_;
  unsigned strangers_ = 0;  // pids asked for that are no processes here
};

// The processes of one GPU over a run.
class GpuProcesses {
 public:
  // One reading of the lists; `graphics` may be one that the GPU does not support.
  void add(const gpu::NvmlResult<std::vector<gpu::NvmlProcess>>& compute,
           const gpu::NvmlResult<std::vector<gpu::NvmlProcess>>& graphics, ProcessBook& book);

  std::vector<snapshot::GpuProcess> processes() const;
  std::optional<std::uint64_t> job_memory_peak_bytes() const { return job_peak_bytes_; }
  // nullopt before the first list; false after a failure, and where lists are no evidence.
  std::optional<bool> known(const ProcessBook& book) const;
  // "no permission", …; empty when no list failed.
  const std::string& failure() const { return failure_; }

 private:
  std::map<std::pair<pid_t, std::uint64_t>, snapshot::GpuProcess> processes_;
  std::optional<std::uint64_t> job_peak_bytes_;
  bool listed_ = false;
  std::string failure_;
};

}  // namespace corral::sample

// SPDX-License-Identifier: Apache-2.0
// Which processes belong to the job, and which of them use the driver without passing the shim.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace corral::launch {

struct SeenProcess {
  pid_t pid = 0;
  std::uint64_t start_ticks = 0;
  std::string command;
  bool maps_driver = false;
  bool maps_shim = false;
  // A library that a profiler puts between the program and the driver, by its name:
  // "libcuda-injection.so"; empty: none.
  std::string injection;
  // Why its contexts would not be in our traces; empty when they would.
  std::string unobserved_why;
};

class JobWatch {
 public:
  // `library_folder`, `trace_folder`: of the run; empty when the job is not observed at all.
  // `driver`: path of the real driver.
  JobWatch(std::string library_folder, std::string trace_folder, std::string driver);

  // Looks at the job's processes now. A process that has no driver is looked at again ever more
  // rarely: reading the maps of a thousand shells each second would cost more than it tells.
  void look(const std::vector<pid_t>& pids);

  // Every process ever seen, also those that are gone.
  std::vector<SeenProcess> seen() const;

 private:
  struct Entry {
    SeenProcess process;
    unsigned looks = 0;
    unsigned next_look = 0;
  };
  void look_at(Entry& entry);
  std::string why_unobserved(const SeenProcess& process) const;

  std::string library_folder_;
  std::string trace_folder_;
  std::string driver_;
  unsigned round_ = 0;
  std::map<std::pair<pid_t, std::uint64_t>, Entry> entries_;
};

}  // namespace corral::launch

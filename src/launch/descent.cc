// SPDX-License-Identifier: Apache-2.0
#include "launch/descent.h"

#include <algorithm>

namespace corral::launch {

std::vector<host::ProcessStat> processes_below(const host::Root& root, pid_t self) {
  std::vector<host::ProcessStat> out;
  const auto pids = host::descendants(root, self);
  if (!pids) return out;
  for (const pid_t pid : *pids)
    if (auto stat = host::read_stat(root, pid)) out.push_back(*std::move(stat));
  return out;
}

Descent descent_of(const host::Root& root, pid_t pid, pid_t self,
                   const std::vector<host::ProcessStat>& earlier) {
  // Parents are read at different moments: a limit, because they could form a ring.
  constexpr int kMaxDepth = 1024;
  for (int i = 0; i < kMaxDepth && pid > 0; ++i) {
    if (pid == self) return Descent::job;
    const auto stat = host::read_stat(root, pid);
    if (!stat) break;
    if (std::ranges::any_of(earlier, [&](const host::ProcessStat& other) {
          return other.pid == stat->pid && other.start_ticks == stat->start_ticks;
        }))
      return Descent::earlier;
    pid = stat->parent;
  }
  return Descent::elsewhere;
}

}  // namespace corral::launch

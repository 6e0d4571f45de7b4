// SPDX-License-Identifier: Apache-2.0
// Whose process one is: the job's, or one that this process had below it before the job.
//
// Corral may have children that are not the job's: a shell with processes in the background
// replaced itself by Corral, or Corral is the first process of a pid namespace. Those that are
// there before the job starts are noted then. One that is adopted later, by a subreaper or a first
// process, looks like an orphan of the job and is taken for one.
#pragma once

#include <sys/types.h>

#include <vector>

#include "host/proc.h"
#include "host/root.h"

namespace corral::launch {

enum class Descent {
  job,        // this process, or below it
  earlier,    // one of the earlier processes, or below one
  elsewhere,  // neither, or gone
};

// The processes below `self` now.
std::vector<host::ProcessStat> processes_below(const host::Root& root, pid_t self);

// `self`: Corral. `earlier`: what processes_below() gave before the job started.
Descent descent_of(const host::Root& root, pid_t pid, pid_t self,
                   const std::vector<host::ProcessStat>& earlier);

}  // namespace corral::launch

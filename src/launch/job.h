// SPDX-License-Identifier: Apache-2.0
// Starts the job confined, and lives beside it until it ends.
//
// The job stays in Corral's process group: the terminal's foreground group, a pipeline and the
// shell's job control then work as without Corral. What reaches the whole group has reached the
// job; what was sent to Corral alone is passed on (launch/canary). When the job stops, Corral stops
// with the same signal, so that the shell sees it.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <expected>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "host/proc.h"
#include "isolate/apply.h"
#include "launch/canary.h"
#include "launch/environment.h"
#include "launch/exit_codes.h"

namespace corral::launch {

struct JobSpec {
  std::vector<std::string> command;                // at least the program
  Environment environment;                         // with the plan's settings in it
  const isolate::Prepared* confinement = nullptr;  // null: none
};

// Why there is no job, and what Corral must exit with.
struct StartError {
  Error error;
  int exit_code = kCannotSetUp;
};

// Signals and dispositions as the caller had them, which the job gets back before exec.
// open() blocks every signal but faults, SIGKILL and SIGSTOP, for all threads made afterwards,
// and makes this process a child subreaper. Also notes what is below this process already.
class SignalDesk {
 public:
  static Result<SignalDesk> open();
  int fd() const { return fd_.get(); }
  void restore_for_job() const;  // async-signal-safe
  // What was below this process then, and is none of the job's (launch/descent).
  const std::vector<host::ProcessStat>& earlier_processes() const { return earlier_processes_; }

 private:
  Fd fd_;
  sigset_t old_mask_{};
  struct sigaction old_child_action_{};
  std::vector<host::ProcessStat> earlier_processes_;
};

// Replaces this process by the job, confined: nothing watches it. Returns only on failure.
StartError exec_in_place(const JobSpec& spec);

// Forks, confines and execs. Returns when exec has happened; a job that cannot start leaves no
// process behind.
std::expected<pid_t, StartError> start_job(const JobSpec& spec, const SignalDesk& signals);

struct JobEnd {
  int wait_status = 0;         // as waitpid gave it for the job's first process
  double grace_used_s = 0;     // waited for processes that it left behind
  std::vector<pid_t> orphans;  // still there after the grace
};

// Lives beside the job. `every_second` is called about once a second while any process of it is
// there.
JobEnd supervise(pid_t job, const SignalDesk& signals, Canary& canary, double grace_s,
                 const std::function<void()>& every_second);

// The processes of the job: all descendants of this process but the canary and the earlier ones
// with theirs.
std::vector<pid_t> job_processes(const SignalDesk& signals, pid_t canary);

}  // namespace corral::launch

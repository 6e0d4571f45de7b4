// SPDX-License-Identifier: Apache-2.0
// Tells a signal that was sent to Corral alone from one that the whole process group, or every
// process of the scheduler's group, received.
//
// The job shares Corral's process group: that is what makes a terminal, a pipeline and job control
// behave as if Corral were not there. A signal sent to Corral's pid must be passed on to the job. A
// signal sent to the group (kill -- -PGID, timeout, scancel, systemd) has reached the job already,
// and passing it on would deliver it twice: a training job that checkpoints on SIGUSR1 would do so
// twice. siginfo does not say which of the two it was. So a third process in the same group, the
// canary, keeps every signal blocked; when a signal arrives at Corral and is pending in the canary
// too, it was for all.
#pragma once

#include <sys/types.h>

#include "base/error.h"
#include "base/fd.h"

namespace corral::launch {

class Canary {
 public:
  // Forks the canary; it ends by itself when this process is gone.
  static Result<Canary> start();
  Canary(Canary&&) = default;
  Canary& operator=(Canary&&) = default;
  ~Canary();

  // Whether the canary received `signal` as well; forgets it. Waits up to 20 ms for it, since a
  // scheduler signals its processes one after the other.
  bool also_received(int signal);

  // Ends and reaps it; from then on nothing was also received.
  void stop();

  pid_t pid() const { return pid_; }

 private:
  Canary(pid_t pid, Fd line) : pid_(pid), line_(std::move(line)) {}

  pid_t pid_ = -1;
  Fd line_;  // a byte written here makes the canary drop its pending signals and answer with a byte
};

}  // namespace corral::launch

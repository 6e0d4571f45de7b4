// SPDX-License-Identifier: Apache-2.0
// Keeps signals away from threads that are made in the meantime, by us or by a library: a thread
// inherits the mask. A thread of NVML that leaves SIGCHLD open would swallow it, and an open SIGINT
// would end the whole program.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace corral {

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace corral

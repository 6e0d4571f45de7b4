// SPDX-License-Identifier: Apache-2.0
// Runs a function in a forked process, since a confinement cannot be taken off again.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace corral {

// The value of the function as the process's exit status; -1 when it did not exit.
inline int in_child(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  if (pid < 0 || ::waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

}  // namespace corral

// SPDX-License-Identifier: Apache-2.0
#include "launch/canary.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace corral::launch {
namespace {

// Runs `body` in a process that leads a group of its own, with the signals under test ignored: they
// are sent to the whole group. Its exit status is the result.
int in_own_group(const std::function<bool(Canary&)>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::setpgid(0, 0);
    for (const int signal : {SIGTERM, SIGUSR1, SIGCONT}) ::signal(signal, SIG_IGN);
    auto canary = Canary::start();
    ::_exit(canary && body(*canary) ? 0 : 1);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return status;
}

TEST(canary, tells_a_signal_for_the_group_from_one_for_this_process) {
  EXPECT_EQ(in_own_group([](Canary& canary) {
              ::kill(::getpid(), SIGTERM);
              const bool alone = canary.also_received(SIGTERM);
              ::kill(0, SIGTERM);
              const bool group = canary.also_received(SIGTERM);
              return !alone && group;
            }),
            0);
}

TEST(canary, forgets_what_it_told) {
  EXPECT_EQ(in_own_group([](Canary& canary) {
              ::kill(0, SIGUSR1);
              const bool first = canary.also_received(SIGUSR1);
              return first && !canary.also_received(SIGUSR1);
            }),
            0);
}

TEST(canary, survives_every_signal_that_can_be_blocked) {
  EXPECT_EQ(in_own_group([](Canary& canary) {
              // Those between the standard and the real-time ones are libc's own: it never lets
              // them be blocked.
              for (int signal = 1; signal <= SIGRTMAX; ++signal)
                if (signal != SIGKILL && signal != SIGSTOP && (signal < 32 || signal >= SIGRTMIN))
                  ::kill(canary.pid(), signal);
              return canary.also_received(SIGTERM) && ::kill(canary.pid(), 0) == 0;
            }),
            0);
}

TEST(canary, ends_when_its_owner_is_killed) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    auto canary = Canary::start();
    const pid_t canary_pid = canary ? canary->pid() : -1;
    (void)!::write(ends[1], &canary_pid, sizeof canary_pid);
    ::raise(SIGKILL);
  }
  pid_t canary_pid = -1;
  ASSERT_EQ(::read(ends[0], &canary_pid, sizeof canary_pid),
            static_cast<ssize_t>(sizeof canary_pid));
  ::waitpid(pid, nullptr, 0);
  for (int i = 0; i < 500 && ::kill(canary_pid, 0) == 0; ++i) ::usleep(10'000);
  EXPECT_NE(::kill(canary_pid, 0), 0) << "the canary still lives";
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace corral::launch

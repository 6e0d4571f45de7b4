// SPDX-License-Identifier: Apache-2.0
#include "launch/canary.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include "base/file.h"
#include "base/text.h"

namespace corral::launch {
namespace {

constexpr int kTries = 5;
constexpr useconds_t kPauseUs = 4000;

// Standard signals only: realtime signals queue, and nothing sends those to a group.
bool pending(pid_t pid, int signal) {
  const auto status = read_file("/proc/" + std::to_string(pid) + "/status");
  if (!status) return false;
  constexpr std::string_view kKey = "ShdPnd:\t";
  const std::size_t at = status->find(kKey);
  if (at == std::string::npos) return false;
  const auto set =
      parse_number<std::uint64_t>(std::string_view(*status).substr(at + kKey.size(), 16), 16);
  return set && (*set >> (signal - 1) & 1) != 0;
}

[[noreturn]] void live(int line) {
  ::prctl(PR_SET_NAME, "corral-canary");
  // The job's pipes and files must not stay open because of us.
  for (int fd = 0; fd < line; ++fd) ::close(fd);
  ::syscall(SYS_close_range, line + 1, ~0U, 0);
  sigset_t all;
  ::sigfillset(&all);
  char byte = 0;
  for (;;) {
    const ssize_t n = ::read(line, &byte, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) ::_exit(0);
    const timespec now{};
    while (::sigtimedwait(&all, nullptr, &now) > 0) {
    }
    if (::write(line, &byte, 1) != 1) ::_exit(0);
  }
}

}  // namespace

Result<Canary> Canary::start() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_sys("canary: socketpair", errno);
  Fd ours(ends[0]);
  const Fd theirs(ends[1]);
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  // Blocked before the fork: no signal can end the canary, and none is missed.
  ::sigprocmask(SIG_SETMASK, &all, &before);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ours.close();
    live(theirs.get());
  }
  const int error = errno;
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return fail_sys("canary: fork", error);
  return Canary(pid, std::move(ours));
}

Canary::~Canary() { stop(); }

void Canary::stop() {
  if (!line_) return;  // stopped, or moved from
  line_.close();
  ::kill(pid_, SIGCONT);  // a stop of the whole group stopped it too
  ::waitpid(pid_, nullptr, 0);
}

bool Canary::also_received(int signal) {
  if (!line_) return false;
  bool received = pending(pid_, signal);
  for (int i = 0; i < kTries && !received; ++i) {
    ::usleep(kPauseUs);
    received = pending(pid_, signal);
  }
  char byte = 0;
  pollfd answer{.fd = line_.get(), .events = POLLIN, .revents = 0};
  if (received && ::write(line_.get(), &byte, 1) == 1 && ::poll(&answer, 1, 1000) == 1)
    (void)!::read(line_.get(), &byte, 1);
  return received;
}

}  // namespace corral::launch

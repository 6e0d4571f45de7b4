// SPDX-License-Identifier: Apache-2.0
#include "launch/job.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/file.h"
#include "host/proc.h"
#include "launch/descent.h"

namespace corral::launch {
namespace {

constexpr std::int64_t kNsPerMs = 1'000'000;
constexpr std::int64_t kTickNs = 1000 * kNsPerMs;
constexpr int kGracePollMs = 20;
// A flood of signals must not keep the rest from its turn.
constexpr int kSignalsPerTurn = 16;

// Faults stay deadly, and what cannot be caught stays with the kernel.
constexpr std::array kNotTaken = {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGFPE,
                                  SIGILL,  SIGTRAP, SIGSYS,  SIGABRT};
// Taken, so that they do not stop or end Corral, but never passed on: they speak of this process.
constexpr std::array kNotForwarded = {SIGCHLD, SIGPIPE, SIGVTALRM, SIGPROF};

sigset_t taken_signals() {
  sigset_t set;
  ::sigfillset(&set);
  for (const int signal : kNotTaken) ::sigdelset(&set, signal);
  return set;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

StartError exec_error(const std::string& program, int error) {
  if (error == ENOENT)
    return {{program + ": not found (the program, or the interpreter in its first line)",
             "check the spelling and PATH", error},
            kNotFound};
  return {{program + ": cannot be executed: " + std::strerror(error),
           error == EACCES ? "chmod +x, or name its interpreter: python3 " + program : "", error},
          kCannotExecute};
}

StartError confine_and_exec(const JobSpec& spec, char* const* argv, char* const* envp) {
  if (spec.confinement != nullptr)
    if (auto entered = isolate::enter(*spec.confinement); !entered)
      return {entered.error(), kCannotSetUp};
  ::execvpe(argv[0], argv, envp);
  return exec_error(argv[0], errno);
}

Result<pid_t> fork_job(const JobSpec& spec) {
  if (spec.confinement != nullptr) return isolate::fork_confined(*spec.confinement);
  const pid_t pid = ::fork();
  if (pid < 0) return fail_sys("fork the job", errno);
  return pid;
}

// What the child says through the pipe when there will be no job: exit code, errno, "what\0hint".
std::string encode(const StartError& error) {
  std::string text;
  for (const int number : {error.exit_code, error.error.sys})
    text.append(reinterpret_cast<const char*>(&number), sizeof number);
  return text + error.error.what + '\0' + error.error.hint;
}

StartError decode(const std::string& text) {
  int numbers[2];
  if (text.size() < sizeof numbers)
    return {{"the job's process ended before it could start the command", "", 0}, kCannotSetUp};
  std::memcpy(numbers, text.data(), sizeof numbers);
  const std::string words = text.substr(sizeof numbers);
  const std::size_t end = std::min(words.find('\0'), words.size());
  return {{words.substr(0, end), end < words.size() ? words.substr(end + 1) : "", numbers[1]},
          numbers[0]};
}

std::string read_to_end(int fd) {
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(n));
  }
}

// Whether a process outside the job sent it. A terminal's signals come from the kernel and reach
// the whole group. An alarm set before exec is the kernel's too, but this process alone has it:
// without Corral it would be the job's. When the job signals Corral it signals what it takes for
// its shell.
bool from_outside(const signalfd_siginfo& info, const SignalDesk& signals) {
  if (info.ssi_code > 0) return info.ssi_signo == SIGALRM;
  return descent_of(host::Root(), static_cast<pid_t>(info.ssi_pid), ::getpid(),
                    signals.earlier_processes()) != Descent::job;
}

// A process below this one; one that is gone by now counts as the job's.
bool is_of_job(pid_t pid, const SignalDesk& signals) {
  return signals.earlier_processes().empty() ||
         descent_of(host::Root(), pid, ::getpid(), signals.earlier_processes()) != Descent::earlier;
}

bool is_job_control_stop(int signal) {
  return signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

// Stops this process by `signal`, which is blocked or cannot be; returns when it is continued.
void stop_by(int signal) {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, signal);
  sigset_t before;
  ::raise(signal);
  ::sigprocmask(SIG_UNBLOCK, &set, &before);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

// Reaps what has ended; false when no child is left but earlier ones. Without the canary, having no
// other child is having no process of the job: orphans become our children.
bool has_job_children(const SignalDesk& signals) {
  pid_t pid = 0;
  do pid = ::waitpid(-1, nullptr, WNOHANG);
  while (pid > 0);
  if (pid < 0) return errno != ECHILD;
  if (signals.earlier_processes().empty()) return true;
  // The kernel's list may leave one out while a sibling of it ends.
  constexpr int kLooks = 3;
  for (int i = 0; i < kLooks; ++i) {
    const auto pids = host::children(host::Root(), ::getpid());
    if (!pids) return true;
    if (std::ranges::any_of(*pids, [&](pid_t child) { return is_of_job(child, signals); }))
      return true;
  }
  return false;
}

class Supervisor {
 public:
  Supervisor(pid_t job, const SignalDesk& signals, Canary& canary)
      : job_(job), signals_(signals), canary_(canary) {}

  // Waits up to `timeout_ms` for signals and handles some.
  void handle_signals(int timeout_ms) {
    pollfd watched{.fd = signals_.fd(), .events = POLLIN, .revents = 0};
    ::poll(&watched, 1, timeout_ms);
    signalfd_siginfo info{};
    for (int i = 0; i < kSignalsPerTurn; ++i) {
      // Before each: asking the canary takes time, and a job that has ended gets no signals.
      reap();
      if (::read(signals_.fd(), &info, sizeof info) != sizeof info) break;
      handle(info);
    }
    reap();  // always: whatever else happens to SIGCHLD, an ended job is seen within a second
    // The shell must see a stopped job. One that was stopped by its own pid (kill -STOP) is not the
    // shell's affair: whoever continues it would not continue us.
    if (stop_asked_ && stopped_by_ != 0) {
      stop_by(stopped_by_);
      stop_asked_ = false;
      stopped_by_ = 0;
    }
  }

  bool ended() const { return ended_; }
  // Whether a signal that asks for the end came since expect_end().
  bool asked_to_end() const { return asked_to_end_; }
  void expect_end() { asked_to_end_ = false; }
  int wait_status() const { return wait_status_; }

 private:
  void handle(const signalfd_siginfo& info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (std::ranges::find(kNotForwarded, signal) != kNotForwarded.end()) return;
    if (is_job_control_stop(signal)) stop_asked_ = true;
    if (signal == SIGCONT) stop_asked_ = false;
    if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT)
      asked_to_end_ = true;
    const bool kernel = info.ssi_code > 0;
    if (ended_ || !from_outside(info, signals_) || (!kernel && canary_.also_received(signal)))
      return;
    ::kill(job_, signal);
  }

  // Everything that ended: the job, and what it orphaned.
  void reap() {
    for (;;) {
      int status = 0;
      const pid_t pid = ::waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED);
      if (pid <= 0) return;
      if (pid != job_) continue;
      if (WIFSTOPPED(status)) {
        stopped_by_ = WSTOPSIG(status);
      } else if (WIFCONTINUED(status)) {
        stopped_by_ = 0;
      } else {
        wait_status_ = status;
        ended_ = true;
      }
    }
  }

  pid_t job_;
  const SignalDesk& signals_;
  Canary& canary_;
  bool stop_asked_ = false;  // a job control stop reached this process too
  int stopped_by_ = 0;       // the signal that the job is stopped by now
  bool ended_ = false;
  bool asked_to_end_ = false;
  int wait_status_ = 0;
};

}  // namespace

Result<SignalDesk> SignalDesk::open() {
  SignalDesk desk;
  const sigset_t taken = taken_signals();
  ::sigprocmask(SIG_BLOCK, &taken, &desk.old_mask_);
  // Inherited as ignored, the kernel would reap the job and its exit code would be lost.
  struct sigaction by_default{};
  by_default.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &by_default, &desk.old_child_action_);
  desk.fd_ = Fd(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!desk.fd_) return fail_sys("signalfd", errno);
  desk.earlier_processes_ = processes_below(host::Root(), ::getpid());
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return fail_sys("become a child subreaper", errno);
  return desk;
}

void SignalDesk::restore_for_job() const {
  ::sigaction(SIGCHLD, &old_child_action_, nullptr);
  ::sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
}

StartError exec_in_place(const JobSpec& spec) {
  const std::vector<char*> argv = pointers(spec.command);
  const std::vector<char*> envp = pointers(spec.environment.entries());
  return confine_and_exec(spec, argv.data(), envp.data());
}

std::expected<pid_t, StartError> start_job(const JobSpec& spec, const SignalDesk& signals) {
  const std::vector<char*> argv = pointers(spec.command);
  const std::vector<char*> envp = pointers(spec.environment.entries());
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return std::unexpected(StartError{fail_sys("pipe to the job", errno).error(), kCannotSetUp});
  Fd reader(ends[0]);
  Fd writer(ends[1]);
  const auto forked = fork_job(spec);
  if (!forked) return std::unexpected(StartError{forked.error(), kCannotSetUp});
  const pid_t pid = *forked;
  if (pid == 0) {
    reader.close();
    signals.restore_for_job();
    const StartError error = confine_and_exec(spec, argv.data(), envp.data());
    (void)write_all(writer.get(), encode(error));
    ::_exit(error.exit_code);
  }
  writer.close();
  const std::string message = read_to_end(reader.get());
  if (message.empty()) return pid;  // closed by exec, or by a death that waitpid will tell
  ::waitpid(pid, nullptr, 0);
  return std::unexpected(decode(message));
}

std::vector<pid_t> job_processes(const SignalDesk& signals, pid_t canary) {
  auto pids = host::descendants(host::Root(), ::getpid());
  if (!pids) return {};
  std::erase_if(*pids, [&](pid_t pid) { return pid == canary || !is_of_job(pid, signals); });
  return *std::move(pids);
}

JobEnd supervise(pid_t job, const SignalDesk& signals, Canary& canary, double grace_s,
                 const std::function<void()>& every_second) {
  Supervisor supervisor(job, signals, canary);
  std::int64_t next_tick = monotonic_ns() + kTickNs;
  const auto tick = [&] {
    if (monotonic_ns() < next_tick) return;
    every_second();
    next_tick = monotonic_ns() + kTickNs;
  };
  while (!supervisor.ended()) {
    const std::int64_t wait_ms =
        std::max<std::int64_t>(0, (next_tick - monotonic_ns()) / kNsPerMs + 1);
    supervisor.handle_signals(static_cast<int>(wait_ms));
    tick();
  }
  canary.stop();
  JobEnd end{.wait_status = supervisor.wait_status(), .grace_used_s = 0, .orphans = {}};
  const std::int64_t ended = monotonic_ns();
  supervisor.expect_end();
  while (has_job_children(signals) && end.grace_used_s < grace_s && !supervisor.asked_to_end()) {
    supervisor.handle_signals(kGracePollMs);
    tick();
    end.grace_used_s = static_cast<double>(monotonic_ns() - ended) / 1e9;
  }
  if (has_job_children(signals)) end.orphans = job_processes(signals, canary.pid());
  return end;
}

}  // namespace corral::launch

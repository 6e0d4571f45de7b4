// SPDX-License-Identifier: Apache-2.0
#include "base/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"

extern char** environ;

namespace corral {
namespace {

constexpr std::size_t kMostAnswer = 1U << 20;
constexpr std::int64_t kNsPerMs = 1'000'000;
constexpr std::chrono::milliseconds kLook{2};

struct Pipe {
  Fd read;
  Fd write;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_sys("pipe", errno);
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

// A signal of the terminal is not its business, and it can be killed with what it starts.
Result<pid_t> start(const Question& question, int input, int output) {
  const std::vector<char*> argv = pointers(question.words);
  const std::vector<char*> envp = pointers(question.environment);
  const pid_t pid = ::fork();
  if (pid < 0) return fail_sys("fork " + question.words.front(), errno);
  if (pid > 0) return pid;
  ::setsid();
  ::dup2(input, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execvpe(argv[0], argv.data(), envp.data());
  ::_exit(127);
}

std::string too_late(std::chrono::milliseconds patience) {
  return "did not answer within " + std::to_string(patience.count()) + " ms";
}

// What comes out of `fd` until its end; nullopt when `deadline_ns` comes first. More than is taken
// ends it too.
std::optional<std::string> read_until(int fd, std::int64_t deadline_ns) {
  std::string text;
  char buffer[4096];
  while (text.size() <= kMostAnswer) {
    const std::int64_t left_ms = (deadline_ns - monotonic_ns()) / kNsPerMs;
    pollfd watched{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = left_ms > 0 ? ::poll(&watched, 1, static_cast<int>(left_ms)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(buffer, static_cast<std::size_t>(n));
  }
  return text;
}

// The end of a program may come long after that of its output. nullopt when `deadline_ns` comes
// first.
std::optional<int> wait_until(pid_t pid, std::int64_t deadline_ns) {
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(pid, &status, WNOHANG);
    if (ended > 0) return status;
    // Where the caller ignores SIGCHLD, the kernel reaps it and the code is lost: its words count.
    if (ended < 0 && errno == ECHILD) return 0;
    if (monotonic_ns() >= deadline_ns) return std::nullopt;
    std::this_thread::sleep_for(kLook);
  }
}

void kill_and_reap(pid_t pid) {
  ::kill(-pid, SIGKILL);
  ::kill(pid, SIGKILL);  // it may not have made its session yet
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace

Result<Answer> ask_program(const Question& question, std::chrono::milliseconds patience) {
  CORRAL_TRY(Pipe input, make_pipe());
  CORRAL_TRY(Pipe output, make_pipe());
  // Before the program is there: it fits into the pipe, and nobody has to read it.
  CORRAL_CHECK(write_all(input.write.get(), question.input));
  input.write.close();
  CORRAL_TRY(const pid_t pid, start(question, input.read.get(), output.write.get()));
  output.write.close();
  const std::int64_t deadline_ns = monotonic_ns() + patience.count() * kNsPerMs;
  const auto text = read_until(output.read.get(), deadline_ns);
  const bool too_much = text && text->size() > kMostAnswer;
  const auto status = text && !too_much ? wait_until(pid, deadline_ns) : std::nullopt;
  if (!status) {
    kill_and_reap(pid);
    return fail(too_much ? "gave an answer of more than 1 MiB" : too_late(patience));
  }
  return Answer{.exit_code = WIFEXITED(*status) ? WEXITSTATUS(*status) : -1, .text = *text};
}

std::vector<std::string> own_environment() {
  std::vector<std::string> out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    out.emplace_back(*entry);
  return out;
}

}  // namespace corral

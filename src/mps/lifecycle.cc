// SPDX-License-Identifier: Apache-2.0
#include "mps/lifecycle.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <functional>
#include <system_error>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "base/private_folder.h"
#include "base/text.h"
#include "host/boot.h"
#include "host/proc.h"
#include "mps/control.h"

extern char** environ;

namespace corral::mps {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kStartPatience{20};  // the driver may have to be loaded
constexpr seconds kAnswerPatience{5};
constexpr seconds kQuitPatience{10};
constexpr seconds kTermPatience{3};
constexpr milliseconds kLook{20};
constexpr const char* kLongestName = "/control_privileged";  // of what the daemon makes there

// Asks again and again; false when time is over.
bool wait_for(std::chrono::milliseconds patience, const std::function<bool()>& done) {
  const std::int64_t deadline = monotonic_ns() + patience.count() * 1'000'000;
  while (!done()) {
    if (monotonic_ns() >= deadline) return false;
    std::this_thread::sleep_for(kLook);
  }
  return true;
}

// Root's daemon serves every user, a user's daemon that user.
unsigned folder_mode() { return ::geteuid() == 0 ? 0755 : 0700; }

Result<void> make_folders(const Folder& folder) {
  std::error_code error;
  std::filesystem::remove_all(folder.pipe(), error);
  std::filesystem::remove_all(folder.log(), error);  // its last line would be quoted as today's
  std::filesystem::remove(folder.record(), error);
  for (const std::string& path : {folder.path, folder.pipe(), folder.log()})
    CORRAL_CHECK(make_private_folder(path, folder_mode()));
  return {};
}

launch::Environment daemon_environment(const Folder& folder, const isolate::Plan& plan) {
  launch::Environment environment(environ);
  for (const isolate::Setting& setting : plan.environment)
    environment.set(setting.name, setting.value);
  environment.set("CUDA_MPS_PIPE_DIRECTORY", folder.pipe());
  environment.set("CUDA_MPS_LOG_DIRECTORY", folder.log());
  // The dialect that is spoken here; the variable wins over an option.
  environment.set("CUDA_MPS_PROTOCOL_VERSION", "2");
  // In the daemon they would be every client's.
  for (const char* name : {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
                           "CUDA_MPS_CLIENT_PRIORITY"})
    environment.unset(name);
  return environment;
}

std::string last_line(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return "";
  const std::string_view whole = trim(*text);
  return printable(whole.substr(whole.rfind('\n') + 1));
}

std::unexpected<Error> not_started(const Folder& folder, const std::string& why) {
  const std::string said = last_line(folder.log() + "/control.log");
  return fail(fmt::format("the MPS daemon did not start: {}{}", why,
                          said.empty() ? "" : "; it says: " + said),
              "its log is in " + folder.log());
}

// Of this user: any other can start a program with that name and that variable.
std::optional<SeenDaemon> seen_at(const Folder& folder) {
  for (SeenDaemon& daemon : control_daemons(host::Root()))
    if (daemon.uid == ::geteuid() && daemon.pipe_folder == folder.pipe()) return std::move(daemon);
  return std::nullopt;
}

bool lives(pid_t pid, std::uint64_t start_ticks) {
  const auto stat = host::read_stat(host::Root(), pid);
  return stat && stat->start_ticks == start_ticks && stat->state != 'Z';
}

struct Process {
  pid_t pid = 0;
  std::uint64_t start_ticks = 0;
};

// The daemon and the servers that it started.
std::vector<Process> family(pid_t pid, std::uint64_t start_ticks) {
  std::vector<Process> out = {{pid, start_ticks}};
  const auto children = host::children(host::Root(), pid);
  if (!children) return out;
  for (const pid_t child : *children)
    if (const auto stat = host::read_stat(host::Root(), child))
      out.push_back({child, stat->start_ticks});
  return out;
}

// True when none is left.
bool end_all(const std::vector<Process>& processes, int signal, milliseconds patience) {
  const auto one_lives = [](const Process& p) { return lives(p.pid, p.start_ticks); };
  for (const Process& process : processes)
    if (one_lives(process)) ::kill(process.pid, signal);
  return wait_for(patience, [&] { return std::ranges::none_of(processes, one_lives); });
}

bool is_server(std::string_view program) {
  return program.substr(program.rfind('/') + 1) == "nvidia-cuda-mps-server";
}

std::vector<Process> servers_at(const Folder& folder) {
  std::vector<Process> out;
  const auto pids = host::list_pids(host::Root());
  if (!pids) return out;
  for (const pid_t pid : *pids) {
    const auto arguments = host::read_arguments(host::Root(), pid);
    if (!arguments || arguments->empty() || !is_server(arguments->front())) continue;
    const auto pipe = host::environment_variable(host::Root(), pid, "CUDA_MPS_PIPE_DIRECTORY");
    const auto stat = host::read_stat(host::Root(), pid);
    if (pipe && *pipe == folder.pipe() && stat && stat->state != 'Z')
      out.push_back({pid, stat->start_ticks});
  }
  return out;
}

bool is_ignored(unsigned signal) {
  struct sigaction action{};
  return ::sigaction(static_cast<int>(signal), nullptr, &action) == 0 &&
         action.sa_handler == SIG_IGN;
}

// Whether a signal has come that would have ended this program.
bool told_to_end(const launch::SignalDesk& signals) {
  signalfd_siginfo info{};
  while (::read(signals.fd(), &info, sizeof info) == sizeof info)
    if ((info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM || info.ssi_signo == SIGHUP ||
         info.ssi_signo == SIGQUIT) &&
        !is_ignored(info.ssi_signo))
      return true;
  return false;
}

std::unexpected<Error> interrupted() {
  return fail("the MPS daemon was not started: interrupted by a signal", "", EINTR);
}

// The program puts its daemon into the background and ends.
Result<void> run_starter(const launch::JobSpec& spec, const launch::SignalDesk& signals,
                         const Folder& folder) {
  const auto starter = launch::start_job(spec, signals);
  if (!starter) return std::unexpected(starter.error().error);
  int status = 0;
  pid_t ended = 0;
  bool stop = false;
  wait_for(kStartPatience, [&] {
    ended = ::waitpid(*starter, &status, WNOHANG);
    stop = told_to_end(signals);
    return ended != 0 || stop;
  });
  if (ended == 0) {
    ::kill(*starter, SIGKILL);
    ::waitpid(*starter, &status, 0);
  }
  if (stop) return interrupted();
  if (ended == 0)
    return not_started(folder, fmt::format("it took longer than {} s", kStartPatience.count()));
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return not_started(folder, WIFEXITED(status) ? fmt::format("exit code {}", WEXITSTATUS(status))
                                                 : fmt::format("signal {}", WTERMSIG(status)));
  return {};
}

Result<SeenDaemon> wait_for_answer(const std::string& program, const Folder& folder,
                                   const launch::SignalDesk& signals) {
  Error last{"nobody answers", "", 0};
  std::optional<SeenDaemon> daemon;
  bool stop = false;
  const bool answers = wait_for(kAnswerPatience, [&] {
    stop = told_to_end(signals);
    if (stop) return true;
    daemon = seen_at(folder);
    if (!daemon) return false;
    const auto serving = ask_what_it_serves(program, folder.pipe(), kAnswerPatience);
    if (!serving) last = serving.error();
    return serving.has_value();
  });
  if (stop) return interrupted();
  if (!daemon) return not_started(folder, "no process of it is left");
  if (!answers) return not_started(folder, last.what);
  return *daemon;
}

}  // namespace

Result<Fd> take_lock(const Folder& folder) {
  constexpr std::size_t kMostPath = sizeof(sockaddr_un::sun_path) - 1;
  if (folder.pipe().size() + std::string_view(kLongestName).size() > kMostPath)
    return fail(fmt::format("{}: too long a path for a socket ({} characters at most)",
                            folder.pipe(), kMostPath),
                "set XDG_RUNTIME_DIR to a shorter one");
  const std::filesystem::path base = std::filesystem::path(folder.path).parent_path();
  std::error_code error;
  std::filesystem::create_directories(base.parent_path(), error);
  if (error) return fail("make the folder of " + base.string() + ": " + error.message());
  CORRAL_CHECK(make_private_folder(base.string(), folder_mode()));
  CORRAL_TRY(Fd lock, open_file(folder.lock(), O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return errno == EWOULDBLOCK
               ? fail("somebody else starts or stops this GPU's MPS daemon right now",
                      "try again in a moment")
               : fail_sys("lock " + folder.lock(), errno);
  return lock;
}

std::vector<pid_t> servers_left(const Folder& folder) {
  std::vector<pid_t> pids;
  for (const Process& server : servers_at(folder)) pids.push_back(server.pid);
  return pids;
}

std::string servers_left_text(const std::vector<pid_t>& servers) {
  return fmt::format(
      "the MPS daemon before was killed, and its server (pid {}) lives on with the clients that it "
      "may have",
      fmt::join(servers, ", "));
}

std::optional<pid_t> unrecorded(const Folder& folder) {
  const auto daemon = seen_at(folder);
  return daemon ? std::optional(daemon->pid) : std::nullopt;
}

void end_unrecorded(const Folder& folder) {
  while (const auto daemon = seen_at(folder))
    if (!end_all(family(daemon->pid, daemon->start_ticks), SIGKILL, kTermPatience)) return;
}

Result<Record> start_daemon(const std::string& program, const Folder& folder,
                            const std::string& gpu_uuid, const isolate::Prepared& confinement,
                            const launch::SignalDesk& signals) {
  CORRAL_TRY(const std::string boot, host::boot_id(host::Root()));
  // Of a start that was killed before it could write its record.
  end_unrecorded(folder);
  if (const std::vector<pid_t> servers = servers_left(folder); !servers.empty())
    return fail(servers_left_text(servers), kEndServers);
  CORRAL_CHECK(make_folders(folder));
  const launch::JobSpec spec{.command = {program, "-d"},
                             .environment = daemon_environment(folder, confinement.plan),
                             .confinement = &confinement};
  // A program that failed, or took too long, may have made its daemon all the same.
  const auto started = run_starter(spec, signals, folder);
  const auto daemon = started ? wait_for_answer(program, folder, signals)
                              : Result<SeenDaemon>(std::unexpected(started.error()));
  if (!daemon) {
    end_unrecorded(folder);
    return std::unexpected(daemon.error());
  }
  Record record{.boot_id = boot,
                .gpu = gpu_uuid,
                .pid = daemon->pid,
                .start_ticks = daemon->start_ticks,
                .enforced = confinement.plan.refused.empty() ? std::string(kNoOtherGpu)
                                                             : confinement.plan.enforced};
  if (auto written = write_file(folder.record(), record_text(record)); !written) {
    end_unrecorded(folder);
    ::unlink(folder.record().c_str());
    return std::unexpected(written.error());
  }
  return record;
}

Result<std::string> stop_daemon(const std::string& program, const Daemon& daemon) {
  std::string how = "was dead already";
  if (daemon.alive) {
    const std::vector<Process> processes = family(daemon.record.pid, daemon.record.start_ticks);
    const auto asked = quit(program, daemon.folder.pipe(), Dialect::legacy, kQuitPatience);
    const auto gone = [&] {
      return std::ranges::none_of(processes,
                                  [](const Process& p) { return lives(p.pid, p.start_ticks); });
    };
    how = "ended";
    if (!asked || !wait_for(kQuitPatience, gone)) {
      how = "did not end by itself and was killed";
      if (!end_all(processes, SIGTERM, kTermPatience) &&
          !end_all(processes, SIGKILL, kTermPatience))
        return fail(fmt::format("pid {}: the MPS daemon cannot be killed", daemon.record.pid),
                    "a process that waits in the driver ends when the driver lets it");
    }
  }
  if (!end_all(servers_at(daemon.folder), SIGKILL, kTermPatience))
    return fail("a server of the MPS daemon cannot be killed",
                "a process that waits in the driver ends when the driver lets it");
  std::error_code error;
  std::filesystem::remove_all(daemon.folder.path, error);
  if (error) return fail("remove " + daemon.folder.path + ": " + error.message());
  return how;
}

}  // namespace corral::mps

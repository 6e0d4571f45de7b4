// SPDX-License-Identifier: Apache-2.0
#include "confined_run.h"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/fd.h"
#include "base/file.h"
#include "base/text.h"
#include "host/cgroup.h"
#include "isolate/apply.h"
#include "isolate/facts.h"
#include "isolate/plan.h"
#include "ring.h"

namespace corral::escape {
namespace {

constexpr std::string_view kNodePrefix = "corral-escape-";
constexpr std::string_view kFolderPrefix = "/var/lib/corral-escape-";
constexpr int kGivenFd = 9;
constexpr int kNotStarted = 125;
constexpr int kGraceTries = 200;
constexpr int kGracePauseUs = 10'000;

// Everything that a run reports is one text through a pipe: "started", or why not.
void report(int pipe, std::string_view text) {
  [[maybe_unused]] const auto done = write_all(pipe, text);
}

[[noreturn]] void give_up(int pipe, const std::string& why) {
  report(pipe, why);
  ::_exit(kNotStarted);
}

void need(int pipe, bool done, const char* what) {
  if (!done) give_up(pipe, std::string("set-up: ") + what + ": " + std::strerror(errno));
}

void step_down(int pipe) {
  need(pipe, ::setgroups(0, nullptr) == 0, "setgroups");
  need(pipe, ::setresgid(kUser, kUser, kUser) == 0, "setresgid");
  need(pipe, ::setresuid(kUser, kUser, kUser) == 0, "setresuid");
}

void own_mounts(int pipe) {
  need(pipe, ::unshare(CLONE_NEWNS) == 0, "unshare");
  need(pipe, ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "private mounts");
  need(pipe, ::mount("tmpfs", "/tmp", "tmpfs", 0, "mode=1777") == 0, "a /tmp of its own");
}

void give(int pipe, int fd, int as) {
  need(pipe, fd >= 0 && ::dup2(fd, as) == as, "a descriptor to inherit");
  if (fd != as) ::close(fd);
  ::setenv("ESCAPE_FD", std::to_string(as).c_str(), 1);
}

pid_t start_helper(int pipe, const Ground& ground, const Column& column) {
  int out[2];
  need(pipe, ::pipe2(out, O_CLOEXEC) == 0, "pipe");
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (column.user) step_down(pipe);
    ::dup2(out[1], STDOUT_FILENO);
    ::execl((ground.folder() + "/escape").c_str(), "escape", "helper", ground.node().c_str(),
            nullptr);
    ::_exit(kNotStarted);
  }
  ::close(out[1]);
  FILE* in = ::fdopen(out[0], "r");
  char number[24];
  char address[24];
  char fd[24];
  need(pipe, std::fscanf(in, "%23s %23s %23s", number, address, fd) == 3, "helper");
  std::fclose(in);
  ::setenv("ESCAPE_HELPER_PID", number, 1);
  ::setenv("ESCAPE_HELPER_ADDRESS", address, 1);
  ::setenv("ESCAPE_HELPER_FD", fd, 1);
  return pid;
}

// Waits for the program to ask, then removes the node and makes it again.
pid_t start_maker(int pipe, const Ground& ground) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  while (::access("/tmp/escape-go", F_OK) != 0) ::usleep(1000);
  need(pipe, ::unlink(ground.node().c_str()) == 0 && ground.restore(), "make the node again");
  const Fd done(::open("/tmp/escape-done", O_WRONLY | O_CREAT, 0644));
  ::_exit(0);
}

void give_ring(int pipe) {
  io_uring_params params{};
  const int ring = ring_make(&params);
  if (ring < 0) return give(pipe, ::open("/dev/null", O_RDONLY), kGivenFd);
  give(pipe, ring, kGivenFd);
  const Fd file(::open("/tmp/escape-ring", O_WRONLY | O_CREAT, 0644));
  need(pipe, ::write(file.get(), &params, sizeof params) == ssize_t{sizeof params}, "ring file");
}

void give_socket(int pipe, const std::string& node) {
  int ends[2];
  need(pipe, ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
  const int fd = ::open(node.c_str(), O_RDWR | O_CLOEXEC);
  char byte = 0;
  iovec data{.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)]{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(head), &fd, sizeof fd);
  need(pipe, ::sendmsg(ends[0], &message, 0) == 1, "send a descriptor");
  ::close(fd);
  give(pipe, ends[1], kGivenFd);
}

std::string group_above(const Column& column) {
  const auto entries = host::read_cgroup(host::Root());
  const auto mounts = host::read_mountinfo(host::Root());
  if (!entries || !mounts) return {};
  const auto place = column.cgroup1 ? host::locate_v1(*entries, *mounts, "devices")
                                    : host::locate_v2(*entries, *mounts);
  return place ? place->folder : std::string();
}

void make_node(int pipe, const std::string& path) {
  need(pipe, ::mknod(path.c_str(), S_IFCHR | 0666, makedev(kNodeMajor, kNodeMinor)) == 0, "mknod");
  ::chmod(path.c_str(), 0666);
}

std::string alias_folder(const Ground& ground) { return ground.folder() + "/alias"; }

void make_alias_folder(int pipe, const Ground& ground) {
  const std::string folder = alias_folder(ground);
  need(pipe, ::mount("tmpfs", folder.c_str(), "tmpfs", 0, "mode=755") == 0, "alias folder");
}

// Returns the helper's pid, 0 when there is none.
pid_t set_up(int pipe, const Ground& ground, const Column& column, Setup setup) {
  pid_t helper = 0;
  switch (setup) {
    case Setup::none:
      break;
    case Setup::helper:
      helper = start_helper(pipe, ground, column);
      break;
    case Setup::inherit_fd:
      give(pipe, ::open(ground.node().c_str(), O_RDWR), kGivenFd);
      break;
    case Setup::inherit_stdin:
      give(pipe, ::open(ground.node().c_str(), O_RDWR), STDIN_FILENO);
      break;
    case Setup::inherit_opath:
      give(pipe, ::open(ground.node().c_str(), O_PATH), kGivenFd);
      break;
    case Setup::inherit_folder:
      give(pipe, ::open("/dev", O_RDONLY | O_DIRECTORY), kGivenFd);
      break;
    case Setup::inherit_cwd:
      need(pipe, ::chdir("/dev") == 0, "chdir /dev");
      break;
    case Setup::inherit_ring:
      give_ring(pipe);
      break;
    case Setup::inherit_pidfd:
      helper = start_helper(pipe, ground, column);
      give(pipe, static_cast<int>(::syscall(SYS_pidfd_open, helper, 0)), kGivenFd);
      ::fcntl(kGivenFd, F_SETFD, 0);
      break;
    case Setup::inherit_procs:
      give(pipe, ::open((group_above(column) + "/cgroup.procs").c_str(), O_WRONLY), kGivenFd);
      break;
    case Setup::inherit_mount_namespace:
      give(pipe, ::open(("/proc/" + std::to_string(::getppid()) + "/ns/mnt").c_str(), O_RDONLY),
           kGivenFd);
      break;
    case Setup::socket:
      give_socket(pipe, ground.node());
      break;
    case Setup::alias_bind: {
      make_alias_folder(pipe, ground);
      const std::string folder = alias_folder(ground) + "/dev";
      need(pipe, ::mkdir(folder.c_str(), 0755) == 0, "mkdir");
      need(pipe, ::mount("/dev", folder.c_str(), nullptr, MS_BIND, nullptr) == 0, "bind /dev");
      break;
    }
    case Setup::alias_node:
      make_alias_folder(pipe, ground);
      make_node(pipe, path_for(ground, setup));
      break;
    case Setup::alias_in_tmp:
      need(pipe, ::mkdir("/tmp/escape-alias", 0755) == 0, "mkdir");
      make_node(pipe, path_for(ground, setup));
      break;
    case Setup::made_again:
      helper = start_maker(pipe, ground);
      break;
  }
  return helper;
}

Result<isolate::Plan> plan(const Ground& ground, const Column& column) {
  isolate::Request request;
  if (column.confines()) request.refuse_paths = {ground.node()};
  request.tight = column.tight;
  std::vector<isolate::Method> named;
  if (column.cgroup2 || column.cgroup1) named.push_back(isolate::Method::cgroup);
  if (column.mount) named.push_back(isolate::Method::mount);
  if (column.landlock) named.push_back(isolate::Method::landlock);
  if (!named.empty()) request.methods = named;
  CORRAL_TRY(isolate::Host host, isolate::read_host_facts(request));
  if (column.cgroup2) host.cgroup1_devices.reset();
  if (column.cgroup1) {
    host.cgroup2.reset();
    host.cgroup2_trouble = "not looked at in this test";
  }
  return isolate::make_plan(request, host);
}

[[noreturn]] void become(int pipe, const isolate::Prepared& prepared, const Column& column,
                         const std::vector<std::string>& argv) {
  if (auto entered = isolate::enter(prepared); !entered) give_up(pipe, entered.error().what);
  if (column.user && !column.by_user) step_down(pipe);
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  report(pipe, "started");
  ::execv(words[0], words.data());
  ::_exit(kNotStarted);
}

// The process that stands for corral: sets up, confines, waits, cleans up.
[[noreturn]] void launch(int pipe, const Ground& ground, const Column& column, Setup setup,
                         const std::vector<std::string>& argv) {
  own_mounts(pipe);
  const std::string node = std::to_string(kNodeMajor) + ":" + std::to_string(kNodeMinor);
  ::setenv("ESCAPE_NODE", node.c_str(), 1);
  ::setenv("ESCAPE_OUTSIDE_PID", std::to_string(::getppid()).c_str(), 1);
  ::setenv("ESCAPE_FOLDER", ground.folder().c_str(), 1);
  ::setenv("HOME", "/tmp", 1);
  ::setenv("PATH", "/usr/bin:/bin:/usr/sbin:/sbin", 1);
  ::unsetenv("TMPDIR");
  need(pipe, ::chdir("/tmp") == 0, "chdir");
  const pid_t helper = set_up(pipe, ground, column, setup);
  if (column.by_user) step_down(pipe);
  const auto planned = plan(ground, column);
  if (!planned) give_up(pipe, planned.error().what);
  auto prepared = isolate::prepare(*planned);
  if (!prepared) give_up(pipe, prepared.error().what);

  const auto forked = isolate::fork_confined(*prepared);
  if (!forked) give_up(pipe, forked.error().what);
  const pid_t pid = *forked;
  if (pid == 0) become(pipe, *prepared, column, argv);
  int status = 0;
  need(pipe, ::waitpid(pid, &status, 0) == pid, "waitpid");
  // One of root's that we may not kill any more ends with us.
  if (helper > 0 && ::kill(helper, SIGKILL) == 0) ::waitpid(helper, nullptr, 0);
  auto left = isolate::release(*prepared);
  // Helpers of a job's language end a moment after it (Python's resource tracker).
  for (int i = 0; i < kGraceTries && left && !left->empty(); ++i) {
    ::usleep(kGracePauseUs);
    left = isolate::release(*prepared);
  }
  if (!left) give_up(pipe, "\n" + left.error().what);
  for (const pid_t one : *left) report(pipe, "\nleft " + std::to_string(one));
  ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

std::string read_all(int fd) {
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(n));
  }
}

bool is_gone(std::string_view process) {
  const auto pid = parse_number<pid_t>(process);
  return pid && ::kill(*pid, 0) != 0 && errno == ESRCH;
}

void remove_stale() {
  std::error_code ignored;
  for (const char* folder : {"/dev", "/var/lib"}) {
    const auto names = list_folder(folder);
    if (!names) continue;
    for (const std::string& name : *names)
      if (name.starts_with(kNodePrefix) && is_gone(name.substr(kNodePrefix.size())))
        std::filesystem::remove_all(std::string(folder) + "/" + name, ignored);
  }
}

// The cgroup that the run of that process made.
std::string group_of(pid_t launcher) {
  struct stat status{};
  if (::stat("/proc/self/ns/pid", &status) != 0) return "unknown: no /proc/self/ns/pid";
  const std::string prefix =
      "corral-" + std::to_string(status.st_ino) + "-" + std::to_string(launcher) + "-";
  for (const bool v1 : {false, true}) {
    Column column;
    column.cgroup1 = v1;
    const std::string folder = group_above(column);
    const auto names = list_folder(folder);
    if (folder.empty() || !names) continue;
    for (const std::string& name : *names)
      if (name.starts_with(prefix)) return folder + "/" + name;
  }
  return {};
}

bool copy_program(const char* from, const std::string& to, mode_t mode) {
  std::error_code error;
  std::filesystem::copy_file(from, to, error);
  return !error && ::chmod(to.c_str(), mode) == 0;
}

}  // namespace

Ground::Ground() {
  remove_stale();
  const std::string pid = std::to_string(::getpid());
  node_ = "/dev/" + std::string(kNodePrefix) + pid;
  folder_ = std::string(kFolderPrefix) + pid;
  if (!restore()) {
    trouble_ = "mknod " + node_ + ": " + std::strerror(errno);
    return;
  }
  std::error_code error;
  std::filesystem::create_directories(folder_ + "/alias", error);
  ::chmod(folder_.c_str(), 0755);
  if (!copy_program(ESCAPE_PROGRAM, folder_ + "/escape", 0755) ||
      !copy_program(ESCAPE_STATIC_PROGRAM, folder_ + "/escape_static", 0755) ||
      !copy_program(ESCAPE_STATIC_PROGRAM, folder_ + "/escape_setuid", 04755))
    trouble_ = "copy the programs to " + folder_;
#ifdef ESCAPE_32_PROGRAM
  if (!copy_program(ESCAPE_32_PROGRAM, folder_ + "/escape32", 0755))
    trouble_ = "copy the 32-bit program to " + folder_;
#endif
}

bool Ground::restore() const {
  const dev_t number = makedev(kNodeMajor, kNodeMinor);
  if (::mknod(node_.c_str(), S_IFCHR | 0666, number) != 0 && errno != EEXIST) return false;
  return ::chmod(node_.c_str(), 0666) == 0;  // whatever the umask was
}

Ground::~Ground() {
  std::error_code ignored;
  ::unlink(node_.c_str());
  std::filesystem::remove_all(folder_, ignored);
}

std::string path_for(const Ground& ground, Setup setup) {
  switch (setup) {
    case Setup::alias_bind:
      return alias_folder(ground) + ground.node();
    case Setup::alias_node:
      return alias_folder(ground) + "/second";
    case Setup::alias_in_tmp:
      return "/tmp/escape-alias/second";
    default:
      return ground.node();
  }
}

Ended run(const Ground& ground, const Column& column, Setup setup,
          const std::vector<std::string>& argv) {
  int ends[2];
  if (!ground.restore() || ::pipe2(ends, O_CLOEXEC) != 0)
    return {.status = {}, .message = std::strerror(errno), .left = {}, .lasting_group = {}};
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(ends[0]);
    launch(ends[1], ground, column, setup, argv);
  }
  ::close(ends[1]);
  const std::string text = read_all(ends[0]);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  Ended ended{.status = {}, .message = text, .left = {}, .lasting_group = group_of(pid)};
  const std::vector<std::string_view> lines = split(text, '\n');
  if (lines.front() == "started" && WIFEXITED(status)) ended.status = WEXITSTATUS(status);
  for (const std::string_view line : lines)
    if (line.starts_with("left "))
      ended.left.push_back(parse_number<pid_t>(line.substr(5)).value_or(0));
  return ended;
}

}  // namespace corral::escape

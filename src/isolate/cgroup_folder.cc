// SPDX-License-Identifier: Apache-2.0
#include "isolate/cgroup_folder.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "host/proc.h"
#include "host/root.h"

namespace corral::isolate {
namespace {

constexpr std::string_view kPrefix = "corral-";
constexpr int kMaxGroupsOfOneProcess = 1000;
// An exiting process leaves its group a moment after its parent could wait for it.
constexpr int kRemoveTries = 20;
constexpr timespec kRemovePause{.tv_sec = 0, .tv_nsec = 1'000'000};

// Who made a group. Its pid means something in its own pid namespace only.
struct Owner {
  std::uint64_t pid_namespace = 0;  // inode of /proc/PID/ns/pid
  pid_t pid = 0;
  std::uint64_t start_ticks = 0;
};

// corral-<pidns>-<pid>-<starttime> or corral-<pidns>-<pid>-<starttime>-<n>
std::optional<Owner> parse_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  const std::vector<std::string_view> parts = split(name, '-');
  if (parts.size() < 3 || parts.size() > 4) return std::nullopt;
  const auto pid_namespace = parse_number<std::uint64_t>(parts[0]);
  const auto pid = parse_number<pid_t>(parts[1]);
  const auto start = parse_number<std::uint64_t>(parts[2]);
  if (!pid_namespace || !pid || !start || *pid <= 0) return std::nullopt;
  if (parts.size() == 4 && !parse_number<unsigned>(parts[3])) return std::nullopt;
  return Owner{.pid_namespace = *pid_namespace, .pid = *pid, .start_ticks = *start};
}

Result<std::uint64_t> own_pid_namespace() {
  struct stat status{};
  if (::stat("/proc/self/ns/pid", &status) != 0) return fail_sys("/proc/self/ns/pid", errno);
  return std::uint64_t{status.st_ino};
}

Result<host::ProcessStat> own_stat() {
  CORRAL_TRY(const std::string text, read_file("/proc/self/stat"));
  return host::parse_stat(text);
}

// Of an owner in our own pid namespace. One that nobody waits for, as in a container whose first
// process does not, stays a zombie for good.
bool is_alive(const Owner& owner) {
  const auto stat = host::read_stat(host::Root(), owner.pid);
  return stat && stat->start_ticks == owner.start_ticks && stat->state != 'Z';
}

std::vector<std::string> child_groups(const std::string& folder) {
  std::vector<std::string> groups;
  const auto names = list_folder(folder);
  if (!names) return groups;
  for (const std::string& name : *names) {
    struct stat status{};
    const std::string path = folder + "/" + name;
    if (::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) groups.push_back(path);
  }
  return groups;
}

void collect_members(const std::string& folder, std::vector<pid_t>& pids) {
  // A threaded group refuses to list processes; its threads name them as well.
  auto text = read_file(folder + "/cgroup.procs");
  if (!text) text = read_file(folder + "/cgroup.threads");
  if (text)
    for (const std::string_view line : split(*text, '\n'))
      if (const auto pid = parse_number<pid_t>(line)) pids.push_back(*pid);
  for (const std::string& group : child_groups(folder)) collect_members(group, pids);
}

bool is_in_use(const std::string& folder) {
  std::vector<pid_t> pids;
  collect_members(folder, pids);
  return !pids.empty();
}

// Innermost groups first. False with errno of the last failure.
bool remove_tree(const std::string& folder) {
  for (const std::string& group : child_groups(folder)) remove_tree(group);
  return ::rmdir(folder.c_str()) == 0 || errno == ENOENT;
}

// By its list and not by the name in /proc/self/cgroup: groups of one job in several v1 hierarchies
// have the same name.
bool holds_process(const std::string& folder, pid_t pid) {
  std::vector<pid_t> pids;
  collect_members(folder, pids);
  return std::ranges::find(pids, pid) != pids.end();
}

// Below a threaded group, or one with threaded groups, a new one is unusable until it is made
// threaded too (cgroups(7)).
Result<void> match_type(const std::string& parent, const std::string& folder) {
  const auto type = read_file(parent + "/cgroup.type");
  const bool threaded = type && (trim(*type) == "threaded" || trim(*type) == "domain threaded");
  if (threaded) return write_existing(folder + "/cgroup.type", "threaded");
  return {};
}

}  // namespace

CgroupFolder::CgroupFolder(CgroupFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      procs_(std::move(other.procs_)),
      maker_(std::exchange(other.maker_, 0)) {}

CgroupFolder& CgroupFolder::operator=(CgroupFolder&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(procs_, other.procs_);
  std::swap(maker_, other.maker_);
  return *this;
}

CgroupFolder::~CgroupFolder() {
  // A forked child holds a copy of this object but not the group.
  if (!path_.empty() && maker_ == ::getpid()) remove_tree(path_);
}

Result<CgroupFolder> CgroupFolder::create(const std::string& parent) {
  CORRAL_TRY(const std::uint64_t pid_namespace, own_pid_namespace());
  CORRAL_TRY(const host::ProcessStat self, own_stat());
  const std::string name = std::string(kPrefix) + std::to_string(pid_namespace) + "-" +
                           std::to_string(::getpid()) + "-" + std::to_string(self.start_ticks);
  CgroupFolder group;
  for (int n = 0; n < kMaxGroupsOfOneProcess && group.path_.empty(); ++n) {
    std::string path = parent + "/" + name;
    if (n > 0) path += "-" + std::to_string(n);
    if (::mkdir(path.c_str(), 0755) == 0)
      group.path_ = std::move(path);
    else if (errno != EEXIST)
      return fail_sys("make cgroup " + path, errno);
  }
  if (group.path_.empty()) return fail("make cgroup " + parent + "/" + name + ": too many of them");
  group.maker_ = ::getpid();
  CORRAL_CHECK(match_type(parent, group.path_));
  CORRAL_TRY(group.procs_, open_file(group.path_ + "/cgroup.procs", O_WRONLY));
  return group;
}

// clone3 is called by a process that has a single thread and ends at once: its child would else
// wake up with the locks of threads that it does not have, which only fork(2) of libc puts right.
// CLONE_PARENT makes that child ours.
Result<pid_t> CgroupFolder::fork_into() const {
  CORRAL_TRY(const Fd group, open_file(path_, O_RDONLY | O_DIRECTORY));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_sys("pipe", errno);
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  const pid_t first = ::fork();
  if (first < 0) return fail_sys("fork", errno);
  if (first == 0) {
    clone_args arguments{};
    arguments.flags = CLONE_PARENT | CLONE_INTO_CGROUP;
    arguments.cgroup = static_cast<std::uint64_t>(group.get());
    const auto second = static_cast<pid_t>(::syscall(SYS_clone3, &arguments, sizeof arguments));
    if (second == 0) return 0;
    const pid_t child = second > 0 ? second : ::getpid();
    const bool told = ::write(writer.get(), &child, sizeof child) == ssize_t{sizeof child};
    if (second > 0 || !told) ::_exit(0);
    return 0;
  }
  writer.close();
  pid_t child = 0;
  ssize_t n = 0;
  do n = ::read(reader.get(), &child, sizeof child);
  while (n < 0 && errno == EINTR);
  const bool told = n == ssize_t{sizeof child};
  if (!told || child != first) ::waitpid(first, nullptr, 0);
  if (!told) return fail("fork into cgroup " + path_ + ": the process in between died");
  return child;
}

Result<void> CgroupFolder::join() const {
  if (holds_caller()) return {};
  if (::write(procs_.get(), "0", 1) != 1) return fail_sys("join cgroup " + path_, errno);
  return {};
}

bool CgroupFolder::holds_caller() const { return holds_process(path_, ::getpid()); }

std::vector<pid_t> CgroupFolder::members() const {
  std::vector<pid_t> pids;
  if (!path_.empty()) collect_members(path_, pids);
  std::ranges::sort(pids);
  const auto repeated = std::ranges::unique(pids);
  pids.erase(repeated.begin(), repeated.end());
  return pids;
}

Result<std::vector<pid_t>> CgroupFolder::remove() {
  if (path_.empty()) return std::vector<pid_t>{};
  for (int i = 0; i < kRemoveTries; ++i) {
    if (remove_tree(path_)) {
      path_.clear();
      procs_.close();
      return std::vector<pid_t>{};
    }
    if (errno != EBUSY) return fail_sys("remove cgroup " + path_, errno);
    if (std::vector<pid_t> left = members(); !left.empty()) return left;
    ::nanosleep(&kRemovePause, nullptr);
  }
  return fail_sys("remove cgroup " + path_, EBUSY);
}

unsigned remove_stale_cgroups(const std::string& parent) {
  const auto names = list_folder(parent);
  const auto pid_namespace = own_pid_namespace();
  const auto self = own_stat();
  // Where /proc is that of another pid namespace, it does not tell who of ours is alive.
  if (!names || !pid_namespace || !self || self->pid != ::getpid()) return 0;
  unsigned removed = 0;
  for (const std::string& name : *names) {
    const auto owner = parse_name(name);
    // A process of another namespace may be alive and about to enter its empty group.
    if (!owner || owner->pid_namespace != *pid_namespace) continue;
    if (is_alive(*owner)) continue;
    // A job that outlives its Corral keeps the groups that it made, also those that are empty now.
    const std::string path = parent + "/" + name;
    if (!is_in_use(path) && remove_tree(path)) ++removed;
  }
  return removed;
}

}  // namespace corral::isolate

// SPDX-License-Identifier: Apache-2.0
#include "isolate/systemd.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "host/cgroup.h"
#include "host/proc.h"

namespace corral::isolate {
namespace {

constexpr std::int64_t kNsPerMs = 1'000'000;
constexpr int kLookEveryMs = 2;

bool is_there(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// A line NAME=value of a file of systemd's.
std::string value_of(const std::string& path, std::string_view name) {
  const auto text = read_file(path);
  if (!text) return {};
  for (const std::string_view line : split(*text, '\n'))
    if (line.starts_with(name) && line.substr(name.size()).starts_with('='))
      return std::string(line.substr(name.size() + 1));
  return {};
}

// The name in the file of logind, since the user data base of a host may be far away.
bool lingers(const host::Root& root, const std::string& uid) {
  const std::string name = value_of(root.path("/run/systemd/users/" + uid), "NAME");
  return !name.empty() && is_there(root.path("/var/lib/systemd/linger/" + name));
}

// The innermost slice of our path that is the manager's own: those of a user's are below user@N.
std::string slice_in(std::string_view path, bool user) {
  std::string slice;
  bool own = !user;
  for (const std::string_view part : split(path, '/')) {
    if (part.starts_with("user@") && part.ends_with(".service")) {
      if (!user) break;
      own = true;
      slice.clear();
    } else if (own && part.ends_with(".slice")) {
      slice = part;
    }
  }
  return slice;
}

// "foo.service" when the path ends in it or in groups below it.
std::string service_in(std::string_view path) {
  std::string service;
  for (const std::string_view part : split(path, '/')) {
    const bool manager = part.starts_with("user@");
    if (part.ends_with(".service") && !manager) service = part;
    if (part.ends_with(".scope") || part.ends_with(".slice")) service.clear();
  }
  return service;
}

std::string comm_of(const host::Root& root, pid_t pid) {
  const auto text = read_file(root.path("/proc/" + std::to_string(pid) + "/comm"));
  return text ? std::string(trim(*text)) : std::string();
}

void find_bus(Manager& manager, const host::Root& root, uid_t uid, std::string runtime) {
  if (runtime.empty()) runtime = "/run/user/" + std::to_string(uid);
  manager.user = uid != 0;
  manager.bus = manager.user ? runtime + "/bus" : "/run/dbus/system_bus_socket";
  // A bus of our own with no manager on it is found when the manager is asked.
  if (!is_there(root.path(manager.bus)))
    manager.trouble = manager.user ? "no manager of systemd runs for this user (" + manager.bus +
                                         " is not there; loginctl enable-linger starts one)"
                                   : "systemd's bus is not there (" + manager.bus + ")";
}

void read_group(Manager& manager, const host::Root& root, const host::CgroupPlace& ours,
                const std::string& uid) {
  const std::string path = ours.folder.substr(ours.mount_point.size());
  manager.slice = slice_in(path, manager.user);
  const std::string top =
      ours.mount_point +
      (manager.user ? fmt::format("/user.slice/user-{0}.slice/user@{0}.service", uid) : "");
  manager.controllers = host::read_controllers(root.path(top) + "/cgroup.controllers")
                            .value_or(std::vector<std::string>{});
  if (manager.controllers.empty() && manager.trouble.empty())
    manager.trouble = "systemd has no cgroup v2 controllers (" + top + "/cgroup.controllers)";
  if (const auto text = read_file(root.path(ours.folder) + "/pids.max"))
    manager.pids_max = parse_number<std::uint64_t>(trim(*text));
  const std::string service = service_in(path);
  if (!service.empty() && comm_of(root, ::getppid()) == "systemd" && manager.trouble.empty())
    manager.trouble =
        "corral is the main process of " + service +
        ": put Delegate=yes into it, or its own MemoryMax= and TasksMax=" +
        (manager.user ? " (some versions show Delegate= of the system's units only)" : "");
}

// Our v2 folder, once it ends in the scope's name.
std::optional<std::string> folder_in(const std::string& scope) {
  const auto entries = host::read_cgroup(host::Root());
  const auto mounts = host::read_mountinfo(host::Root());
  if (!entries || !mounts) return std::nullopt;
  const auto place = host::locate_v2(*entries, *mounts);
  if (!place || !place->folder.ends_with("/" + scope)) return std::nullopt;
  return place->folder;
}

}  // namespace

Manager find_manager(const host::Root& root, uid_t uid, const std::string& runtime_folder) {
  Manager manager;
  // In a container that shows the host's /run, pids mean something else than to that manager.
  manager.booted = is_there(root.path("/run/systemd/system")) && comm_of(root, 1) == "systemd";
  if (!manager.booted) return manager;
  manager.trouble.clear();
  find_bus(manager, root, uid, runtime_folder);
  const auto entries = host::read_cgroup(root);
  const auto mounts = host::read_mountinfo(root);
  const auto ours = entries && mounts ? host::locate_v2(*entries, *mounts) : std::nullopt;
  if (!ours) {
    manager.trouble = "cgroup v2 is not mounted, or not down to our group";
    return manager;
  }
  read_group(manager, root, *ours, std::to_string(uid));
  manager.ends_at_logout = manager.user && !lingers(root, std::to_string(uid));
  return manager;
}

std::string scope_name(pid_t pid, std::uint64_t start_ticks) {
  return fmt::format("corral-{}-{}.scope", pid, start_ticks);
}

std::vector<std::string> scope_call(const Manager& manager, const ScopeRequest& request) {
  std::vector<std::string> properties;
  unsigned count = 0;
  const auto add = [&](std::vector<std::string> words) {
    properties.insert(properties.end(), words.begin(), words.end());
    ++count;
  };
  add({"Description", "s", request.description});
  // What is below a delegated unit is not undone at daemon-reload, and a process of it that the
  // kernel kills for memory does not end the rest (OOMPolicy).
  add({"Delegate", "b", "true"});
  add({"CollectMode", "s", "inactive-or-failed"});
  add({"PIDs", "au", "1", std::to_string(request.pid)});
  if (!manager.slice.empty()) add({"Slice", "s", manager.slice});
  if (manager.pids_max) add({"TasksMax", "t", std::to_string(*manager.pids_max)});
  std::vector<std::string> words = {"--address=unix:path=" + manager.bus,
                                    fmt::format("--timeout={}ms", request.limit.count()),
                                    "call",
                                    "org.freedesktop.systemd1",
                                    "/org/freedesktop/systemd1",
                                    "org.freedesktop.systemd1.Manager",
                                    "StartTransientUnit",
                                    "ssa(sv)a(sa(sv))",
                                    request.name,
                                    "fail",
                                    std::to_string(count)};
  words.insert(words.end(), properties.begin(), properties.end());
  words.emplace_back("0");
  return words;
}

Result<std::string> enter_scope(const Manager& manager, const ScopeRequest& request) {
  const std::int64_t end_ns = monotonic_ns() + request.limit.count() * kNsPerMs;
  const std::string object = "make " + request.name + " through " + manager.bus;
  Question question{.words = {"busctl"}, .environment = own_environment()};
  const std::vector<std::string> words = scope_call(manager, request);
  question.words.insert(question.words.end(), words.begin(), words.end());
  const auto answer = ask_program(question, request.limit);
  if (!answer)
    return fail(object + ": systemd's manager " + answer.error().what, answer.error().hint);
  if (answer->exit_code == 127)
    return fail(object + ": busctl was not found", "install it (package systemd)");
  // By its text, since an exit code is lost where SIGCHLD is ignored: o "/org/freedesktop/…/job/7".
  if (!answer->text.starts_with("o \""))
    return fail(object + ": " +
                (answer->text.empty() ? "no answer" : printable(trim(answer->text))));
  // The answer is that of the job: the process is moved a moment later.
  do {
    if (auto folder = folder_in(request.name)) return *std::move(folder);
    ::poll(nullptr, 0, kLookEveryMs);
  } while (monotonic_ns() < end_ns);
  return fail(object + ": systemd took the order, but did not move this process in time");
}

}  // namespace corral::isolate

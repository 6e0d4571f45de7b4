// SPDX-License-Identifier: Apache-2.0
#include "isolate/limit_places.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "base/file.h"
#include "base/text.h"
#include "host/cgroup.h"
#include "host/proc.h"
#include "isolate/cgroup2.h"

namespace corral::isolate {
namespace {

using Names = std::vector<std::string>;

// None where they cannot be read.
Names controllers_in(const std::string& file) {
  return host::read_controllers(file).value_or(Names{});
}

std::string above(const std::string& folder) { return folder.substr(0, folder.rfind('/')); }

std::string base_name(const std::string& folder) { return folder.substr(folder.rfind('/') + 1); }

bool is_there(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// The root of the whole hierarchy, not that of a cgroup namespace: it alone has no events of its
// own (cgroup-v2.rst).
bool is_root_group(const host::Root& root, const std::string& folder) {
  return !is_there(root.path(folder) + "/cgroup.events");
}

// A group can be made there, and a process of the group itself or of one below moved into it.
std::string write_trouble(const host::Root& root, const std::string& folder) {
  const std::string path = root.path(folder);
  if (::access(path.c_str(), W_OK) == 0 && open_file(path + "/cgroup.procs", O_WRONLY)) return {};
  return "no groups can be made in " + folder + " (no rights, or mounted read-only)";
}

// hugetlb has a number for "max": the most pages that a counter takes, in bytes.
constexpr std::uint64_t kAsGoodAsMax = std::uint64_t{1} << 62;

bool is_max(std::string_view value) {
  return value == "max" || parse_number<std::uint64_t>(value).value_or(0) >= kAsGoodAsMax;
}

// "max" in whatever form: alone, after the name of a device, as the value of a key.
bool is_unlimited(std::string_view name, std::string_view text) {
  if (trim(text).empty()) return true;
  if (name == "cpu.max") return text.starts_with("max");
  if (name.starts_with("cpuset.")) return false;
  for (const std::string_view line : split(trim(text), '\n')) {
    const std::vector<std::string_view> words = split(line, ' ');
    for (std::size_t i = words.size() > 1 ? 1 : 0; i < words.size(); ++i)
      if (!is_max(words[i].substr(words[i].find('=') + 1))) return false;
  }
  return true;
}

struct Walk {
  const host::Root& root;
  const host::CgroupPlace& ours;
  const Manager& manager;
  bool as_root = false;
  V2Places out{};

  void reject(std::string why) { out.troubles.push_back(std::move(why)); }
};

// Processes of the group that are neither us nor below us; a 0 is one that our pid namespace does
// not show.
std::vector<pid_t> strangers(const host::Root& root, const std::string& folder) {
  std::vector<pid_t> others;
  const auto text = read_file(root.path(folder) + "/cgroup.procs");
  if (!text) return {0};
  const auto below = host::descendants(host::Root(), ::getpid());
  for (const std::string_view line : split(*text, '\n')) {
    const auto pid = parse_number<pid_t>(line);
    if (!pid || *pid == ::getpid()) continue;
    if (!below || std::ranges::find(*below, *pid) == below->end()) others.push_back(*pid);
  }
  return others;
}

std::string stranger_text(pid_t pid) {
  if (pid == 0) return "a process outside our pid namespace";
  return "process " + std::to_string(pid) + " (" +
         host::describe_process(host::Root(), pid, 60).value_or("ended") + ")";
}

// The root group takes processes and passes controllers on at the same time. One that is off there
// is switched on where nobody else sees to that.
void look_at_root(Walk& walk, const std::string& folder, const std::string& note) {
  if (std::string trouble = write_trouble(walk.root, folder); !trouble.empty())
    return walk.reject(std::move(trouble));
  const Names on = controllers_in(walk.root.path(folder) + "/cgroup.subtree_control");
  const Names all = controllers_in(walk.root.path(folder) + "/cgroup.controllers");
  const bool may_enable = walk.as_root && !walk.manager.booted;
  if (on.empty() && (!may_enable || all.empty()))
    return walk.reject("the root group " + folder + " passes no controllers on");
  walk.out.places.push_back({.folder = folder,
                             .step = may_enable && on != all ? FirstStep::enable : FirstStep::none,
                             .controllers = may_enable ? all : on,
                             .note = note});
}

void look_at_ours(Walk& walk) {
  const std::string& folder = walk.ours.folder;
  if (is_root_group(walk.root, folder)) return look_at_root(walk, folder, "");
  const std::string files = walk.root.path(folder);
  if (std::string trouble = write_trouble(walk.root, folder); !trouble.empty())
    return walk.reject(std::move(trouble));
  // Threaded controllers can be passed on by a group with processes, and then are so already.
  if (Names on = controllers_in(files + "/cgroup.subtree_control"); !on.empty())
    walk.out.places.push_back(
        {.folder = folder, .step = FirstStep::none, .controllers = std::move(on), .note = {}});
  const auto type = read_file(files + "/cgroup.type");
  // "domain threaded": what a killed run of ours left may have made it so, and is removed then.
  if (type && trim(*type) != "domain" && trim(*type) != "domain threaded")
    return walk.reject(folder + " is of type \"" + printable(trim(*type)) + "\"");
  if (walk.manager.booted && !is_delegated(walk.root, walk.ours.mount_point, folder))
    return walk.reject("systemd did not delegate " + folder + " (Delegate=yes)");
  if (const std::vector<pid_t> others = strangers(walk.root, folder); !others.empty())
    return walk.reject(fmt::format("{} cannot pass controllers on: it holds {}{}", folder,
                                   stranger_text(others.front()),
                                   others.size() > 1 ? " and others" : ""));
  if (!open_file(files + "/cgroup.subtree_control", O_WRONLY))
    return walk.reject("cgroup.subtree_control of " + folder + " is not ours to write");
  walk.out.places.push_back(
      {.folder = folder,
       .step = FirstStep::settle,
       .controllers = controllers_in(files + "/cgroup.controllers"),
       .note = folder + " has controllers to pass on: corral itself is in a group below it"});
}

// Why the job must not leave the group. Device programs show to root only; nobody else attaches
// them to groups that a user may write to.
std::string tie_to(const Walk& walk, const std::string& folder, std::string_view kept_file = {}) {
  if (std::string limit = limit_that_holds(walk.root, folder, kept_file); !limit.empty())
    return "the job would get out of what holds in " + folder + ": " + limit;
  if (!walk.root.prefix().empty()) return {};
  const auto programs = query_device_programs(folder, folder);
  if (programs && !programs->empty())
    return "the job would get out of the device program on " + folder;
  return {};
}

void look_at_scope(Walk& walk) {
  if (!walk.manager.booted) return;
  if (!walk.manager.trouble.empty()) return walk.reject(walk.manager.trouble);
  if (is_delegated(walk.root, walk.ours.mount_point, walk.ours.folder))
    return walk.reject(walk.ours.folder +
                       " is in a part of the hierarchy that systemd leaves to somebody else");
  const std::string& slice = walk.manager.slice;
  for (std::string at = walk.ours.folder; at.size() > walk.ours.mount_point.size();
       at = above(at)) {
    if (slice.empty() ? at.ends_with(".slice") : base_name(at) == slice) break;
    // The scope gets the limit of processes that our own group has.
    const bool same_pids = at == walk.ours.folder && walk.manager.pids_max;
    if (std::string tie = tie_to(walk, at, same_pids ? "pids.max" : ""); !tie.empty())
      return walk.reject(std::move(tie));
  }
  std::string note;
  if (walk.manager.ends_at_logout)
    note =
        "the scope ends when your last session does: to let the job go on after logout, loginctl "
        "enable-linger";
  walk.out.places.push_back({.folder = {},
                             .step = FirstStep::scope,
                             .controllers = walk.manager.controllers,
                             .note = std::move(note)});
}

// A process may be moved only by who may write to the nearest group above both places
// (cgroup-v2.rst, "Delegation Containment"), which here is the group above itself.
void look_above(Walk& walk) {
  std::string below = walk.ours.folder;
  while (below.size() > walk.ours.mount_point.size()) {
    if (std::string tie = tie_to(walk, below); !tie.empty()) return walk.reject(std::move(tie));
    const std::string folder = above(below);
    const std::string note =
        fmt::format("the job's group is in {}: {}, in which we are, limits nothing", folder,
                    base_name(walk.ours.folder));
    below = folder;
    if (is_root_group(walk.root, folder)) {
      if (!walk.manager.booted) look_at_root(walk, folder, note);
      return;
    }
    Names on = controllers_in(walk.root.path(folder) + "/cgroup.subtree_control");
    if (on.empty() || !write_trouble(walk.root, folder).empty()) continue;
    // To root everything is writable, so that nothing tells whose it is.
    if (walk.manager.booted &&
        (walk.as_root || !is_delegated(walk.root, walk.ours.mount_point, folder)))
      continue;
    walk.out.places.push_back(
        {.folder = folder, .step = FirstStep::none, .controllers = std::move(on), .note = note});
  }
}

}  // namespace

std::string limit_that_holds(const host::Root& root, const std::string& folder,
                             std::string_view kept_file) {
  const auto names = list_folder(root.path(folder));
  if (!names) return folder + " cannot be read";
  for (const std::string& name : *names) {
    const bool amount = name.ends_with(".max") || name.ends_with(".high");
    if ((!amount && name != "cpuset.cpus" && name != "cpuset.mems") || name == kept_file) continue;
    const auto text = read_file(root.path(folder) + "/" + name);
    if (text && !is_unlimited(name, *text))
      return name + " is " + printable(trim(std::string_view(*text).substr(0, text->find('\n'))));
  }
  return {};
}

bool is_delegated(const host::Root& root, const std::string& mount_point,
                  const std::string& folder) {
  for (std::string at = folder; at.size() > mount_point.size(); at = above(at)) {
    const std::string name = base_name(at);
    if (name.starts_with("user@") && name.ends_with(".service")) return false;
    for (const char* attribute : {"user.delegate", "trusted.delegate"}) {
      char value = 0;
      if (::getxattr(root.path(at).c_str(), attribute, &value, 1) == 1 && value == '1') return true;
    }
  }
  return false;
}

V2Places find_v2_places(const host::Root& root, const Manager& manager, bool as_root) {
  const auto entries = host::read_cgroup(root);
  const auto mounts = host::read_mountinfo(root);
  if (!entries || !mounts) return {.places = {}, .troubles = {"/proc/self/cgroup cannot be read"}};
  const auto ours = host::locate_v2(*entries, *mounts);
  if (!ours)
    return {.places = {}, .troubles = {"cgroup v2 is not mounted, or not down to our group"}};
  Walk walk{.root = root, .ours = *ours, .manager = manager, .as_root = as_root};
  look_at_ours(walk);
  look_at_scope(walk);
  look_above(walk);
  return std::move(walk.out);
}

}  // namespace corral::isolate

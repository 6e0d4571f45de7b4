// SPDX-License-Identifier: Apache-2.0
// What limits this host can hold, and what limits us already.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "host/cgroup.h"
#include "host/number_list.h"
#include "isolate/limit_groups.h"
#include "isolate/limits.h"

namespace corral::isolate {
namespace {

bool is_word_of(const Result<std::string>& text, std::string_view word) {
  if (!text) return false;
  const std::vector<std::string_view> words = split(trim(*text), ' ');
  return std::ranges::find(words, word) != words.end();
}

Result<std::vector<unsigned>> our_mems() {
  CORRAL_TRY(const std::string status, read_file("/proc/self/status"));
  constexpr std::string_view kField = "Mems_allowed_list:";
  for (const std::string_view line : split(status, '\n'))
    if (line.starts_with(kField)) return host::parse_number_list(line.substr(kField.size()));
  return std::vector<unsigned>();  // a kernel without cpusets
}

std::optional<std::uint64_t> memory_total() {
  const auto text = read_file("/proc/meminfo");
  constexpr std::string_view kField = "MemTotal:";
  if (!text || !text->starts_with(kField)) return std::nullopt;
  const std::string_view rest = trim(std::string_view(*text).substr(kField.size()));
  const auto kib = parse_number<std::uint64_t>(rest.substr(0, rest.find(' ')));
  if (!kib) return std::nullopt;
  return *kib << 10;
}

// Corral writes to no group that it did not make: enabling a controller in a group changes what
// holds for everybody in it, and where that has processes the kernel forbids it anyway.
std::string trouble2(const host::Root& root, const std::string& folder, std::string_view name) {
  const std::string files = root.path(folder);
  const std::string controller(name);
  if (is_word_of(read_file(files + "/cgroup.subtree_control"), name)) return {};
  if (!is_word_of(read_file(files + "/cgroup.controllers"), name))
    return "cgroup v2 has no " + controller + " controller in " + folder +
           " (cgroup.controllers; it may be in use by v1)";
  return "the " + controller + " controller is not passed on below " + folder +
         " (cgroup.subtree_control), and a group that has processes cannot pass it on";
}

std::string access_trouble(const host::Root& root, const std::string& folder) {
  const std::string path = root.path(folder);
  if (::access(path.c_str(), W_OK) == 0 && open_file(path + "/cgroup.procs", O_WRONLY)) return {};
  return "no groups can be made in " + folder + " (no rights, or mounted read-only)";
}

}  // namespace

Controller read_controller(const host::Root& root, std::string_view name) {
  const auto entries = host::read_cgroup(root);
  const auto mounts = host::read_mountinfo(root);
  const std::string controller(name);
  if (!entries || !mounts)
    return {.version = 0, .folder = {}, .trouble = "/proc/self/cgroup cannot be read"};
  if (const auto place = host::locate_v1(*entries, *mounts, name))
    return {.version = 1, .folder = place->folder, .trouble = access_trouble(root, place->folder)};
  const auto place = host::locate_v2(*entries, *mounts);
  if (!place)
    return {.version = 0,
            .folder = {},
            .trouble = "no cgroup hierarchy with the " + controller + " controller is mounted"};
  std::string trouble = trouble2(root, place->folder, name);
  if (trouble.empty()) trouble = access_trouble(root, place->folder);
  return {.version = 2, .folder = place->folder, .trouble = std::move(trouble)};
}

Result<LimitFacts> read_limit_facts(const host::Root& hardware) {
  LimitFacts facts;
  CORRAL_TRY(facts.our_cpus, affinity());
  CORRAL_TRY(facts.our_mems, our_mems());
  CORRAL_TRY(facts.nodes, host::numa_nodes(hardware));
  CORRAL_TRY(const std::string online, read_file("/sys/devices/system/cpu/online"));
  CORRAL_TRY(facts.online_cpus, host::parse_number_list(online));
  facts.memory_total_bytes = memory_total();
  facts.cpuset = read_controller(host::Root(), "cpuset");
  facts.memory = read_controller(host::Root(), "memory");
  facts.pids = read_controller(host::Root(), "pids");
  return facts;
}

}  // namespace corral::isolate

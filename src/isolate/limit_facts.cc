// SPDX-License-Identifier: Apache-2.0
// What limits this host can hold, and what limits us already.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/file.h"
#include "base/text.h"
#include "host/cgroup.h"
#include "host/number_list.h"
#include "isolate/limit_groups.h"
#include "isolate/limit_places.h"
#include "isolate/limits.h"

namespace corral::isolate {
namespace {

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

// v2 groups that can be had have other controllers, or there are none.
std::string trouble2(const V2Places& places, std::string_view controller) {
  const bool held = std::ranges::any_of(
      places.places, [&](const V2Place& place) { return place.has(controller); });
  if (held) return {};
  std::vector<std::string> reasons;
  if (!places.places.empty())
    reasons.push_back("no group that we may make on cgroup v2 has the " + std::string(controller) +
                      " controller (cgroup.controllers; it may be in use by v1)");
  reasons.insert(reasons.end(), places.troubles.begin(), places.troubles.end());
  return join(reasons, "; ");
}

std::string access_trouble(const host::Root& root, const std::string& folder) {
  const std::string path = root.path(folder);
  if (::access(path.c_str(), W_OK) == 0 && open_file(path + "/cgroup.procs", O_WRONLY)) return {};
  return "no groups can be made in " + folder + " (no rights, or mounted read-only)";
}

}  // namespace

Controller read_controller(const host::Root& root, std::string_view name, const V2Places& places) {
  const auto entries = host::read_cgroup(root);
  const auto mounts = host::read_mountinfo(root);
  if (!entries || !mounts)
    return {.version = 0, .folder = {}, .trouble = "/proc/self/cgroup cannot be read"};
  if (const auto place = host::locate_v1(*entries, *mounts, name))
    return {.version = 1, .folder = place->folder, .trouble = access_trouble(root, place->folder)};
  if (!host::locate_v2(*entries, *mounts))
    return {
        .version = 0,
        .folder = {},
        .trouble = "no cgroup hierarchy with the " + std::string(name) + " controller is mounted"};
  return {.version = 2, .folder = {}, .trouble = trouble2(places, name)};
}

Result<LimitFacts> read_limit_facts(const host::Root& hardware) {
  LimitFacts facts;
  CORRAL_TRY(facts.our_cpus, affinity());
  CORRAL_TRY(facts.our_mems, our_mems());
  CORRAL_TRY(facts.nodes, host::numa_nodes(hardware));
  CORRAL_TRY(const std::string online, read_file("/sys/devices/system/cpu/online"));
  CORRAL_TRY(facts.online_cpus, host::parse_number_list(online));
  facts.memory_total_bytes = memory_total();
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  facts.manager = find_manager(host::Root(), ::geteuid(), runtime == nullptr ? "" : runtime);
  V2Places places = find_v2_places(host::Root(), facts.manager, ::geteuid() == 0);
  facts.cpuset = read_controller(host::Root(), "cpuset", places);
  facts.memory = read_controller(host::Root(), "memory", places);
  facts.pids = read_controller(host::Root(), "pids", places);
  facts.v2_places = std::move(places.places);
  return facts;
}

}  // namespace corral::isolate

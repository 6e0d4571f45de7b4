// SPDX-License-Identifier: Apache-2.0
#include "host/cgroup.h"

#include <algorithm>

#include "base/file.h"
#include "base/text.h"

namespace corral::host {
namespace {

// 5:devices:/a/b, 0::/a/b; the path may hold colons.
std::optional<CgroupEntry> parse_line(std::string_view line) {
  const auto first = line.find(':');
  const auto second = first == line.npos ? first : line.find(':', first + 1);
  if (second == line.npos) return std::nullopt;
  const auto hierarchy = parse_number<unsigned>(line.substr(0, first));
  if (!hierarchy) return std::nullopt;
  CgroupEntry entry{
      .hierarchy = *hierarchy, .controllers = {}, .path = std::string(line.substr(second + 1))};
  if (entry.path.empty() || entry.path.front() != '/') return std::nullopt;
  const std::string_view controllers = line.substr(first + 1, second - first - 1);
  if (!controllers.empty())
    for (const std::string_view name : split(controllers, ','))
      entry.controllers.emplace_back(name);
  return entry;
}

// The mount shows the subtree at mount.root; a path with ".." lies above the namespace's root.
std::optional<CgroupPlace> place(const CgroupEntry& entry, const Mount& mount) {
  if (entry.path.starts_with("/..")) return std::nullopt;
  std::string_view rest = entry.path;
  if (mount.root != "/") {
    if (!rest.starts_with(mount.root)) return std::nullopt;
    rest.remove_prefix(mount.root.size());
    if (!rest.empty() && rest.front() != '/') return std::nullopt;
  }
  if (rest == "/") rest = {};
  return CgroupPlace{.mount_point = mount.point, .folder = mount.point + std::string(rest)};
}

}  // namespace

Result<std::vector<CgroupEntry>> parse_cgroup(std::string_view text) {
  std::vector<CgroupEntry> entries;
  for (const std::string_view line : split(text, '\n')) {
    if (line.empty()) continue;
    std::optional<CgroupEntry> entry = parse_line(line);
    if (!entry)
      return fail("/proc/PID/cgroup: \"" + printable(line) +
                  "\" is not \"hierarchy:controllers:/path\" as cgroups(7) describes it");
    entries.push_back(*std::move(entry));
  }
  return entries;
}

const CgroupEntry* find_v2(const std::vector<CgroupEntry>& entries) {
  const auto found = std::ranges::find_if(
      entries, [](const CgroupEntry& e) { return e.hierarchy == 0 && e.controllers.empty(); });
  return found == entries.end() ? nullptr : &*found;
}

const CgroupEntry* find_v1(const std::vector<CgroupEntry>& entries, std::string_view controller) {
  const auto found = std::ranges::find_if(entries, [&](const CgroupEntry& e) {
    return std::ranges::find(e.controllers, controller) != e.controllers.end();
  });
  return found == entries.end() ? nullptr : &*found;
}

std::optional<CgroupPlace> locate_v2(const std::vector<CgroupEntry>& entries,
                                     const std::vector<Mount>& mounts) {
  const CgroupEntry* entry = find_v2(entries);
  if (entry == nullptr) return std::nullopt;
  for (const Mount& mount : mounts)
    if (mount.type == "cgroup2")
      if (auto found = place(*entry, mount)) return found;
  return std::nullopt;
}

std::optional<CgroupPlace> locate_v1(const std::vector<CgroupEntry>& entries,
                                     const std::vector<Mount>& mounts,
                                     std::string_view controller) {
  const CgroupEntry* entry = find_v1(entries, controller);
  if (entry == nullptr) return std::nullopt;
  for (const Mount& mount : mounts)
    if (mount.type == "cgroup" && mount.has_super_option(controller))
      if (auto found = place(*entry, mount)) return found;
  return std::nullopt;
}

Result<std::vector<CgroupEntry>> read_cgroup(const Root& root) {
  CORRAL_TRY(const std::string text, read_file(root.path("/proc/self/cgroup")));
  return parse_cgroup(text);
}

Result<std::vector<std::string>> read_controllers(const std::string& file) {
  CORRAL_TRY(const std::string text, read_file(file));
  std::vector<std::string> names;
  for (const std::string_view name : split(trim(text), ' '))
    if (!name.empty()) names.emplace_back(name);
  return names;
}

}  // namespace corral::host

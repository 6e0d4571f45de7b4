// SPDX-License-Identifier: Apache-2.0
// Which cgroups a process is in and where they show in the file system (cgroups(7)).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "host/mountinfo.h"
#include "host/root.h"

namespace corral::host {

// One line of /proc/<pid>/cgroup.
struct CgroupEntry {
  unsigned hierarchy = 0;                // 0: v2
  std::vector<std::string> controllers;  // v1: "devices" or "name=systemd"; empty for v2
  std::string path;                      // relative to the cgroup namespace's root

  bool operator==(const CgroupEntry&) const = default;
};

Result<std::vector<CgroupEntry>> parse_cgroup(std::string_view text);

// The v2 entry, or the v1 entry that holds `controller`; nullptr when there is none.
const CgroupEntry* find_v2(const std::vector<CgroupEntry>& entries);
const CgroupEntry* find_v1(const std::vector<CgroupEntry>& entries, std::string_view controller);

struct CgroupPlace {
  std::string mount_point;
  std::string folder;  // mount point and path; equal to mount_point for the root group

  bool operator==(const CgroupPlace&) const = default;
};

// Where the group shows: the v2 hierarchy, or the v1 hierarchy of `controller`. nullopt: not
// mounted here, or our group lies outside what the mount shows.
std::optional<CgroupPlace> locate_v2(const std::vector<CgroupEntry>& entries,
                                     const std::vector<Mount>& mounts);
std::optional<CgroupPlace> locate_v1(const std::vector<CgroupEntry>& entries,
                                     const std::vector<Mount>& mounts, std::string_view controller);

// /proc/self/cgroup below `root`.
Result<std::vector<CgroupEntry>> read_cgroup(const Root& root);

// The names in a v2 group's cgroup.controllers or cgroup.subtree_control, whose path this is.
Result<std::vector<std::string>> read_controllers(const std::string& file);

}  // namespace corral::host

// SPDX-License-Identifier: Apache-2.0
// The mounts of a process, from /proc/<pid>/mountinfo (proc_pid_mountinfo(5)).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "host/root.h"

namespace corral::host {

struct Mount {
  unsigned id = 0;
  unsigned parent_id = 0;
  unsigned major = 0;  // st_dev of files on it (not so on btrfs)
  unsigned minor = 0;
  std::string root;                  // path inside the file system that shows at the mount point
  std::string point;                 // mount point, relative to the process's root; unescaped
  std::vector<std::string> options;  // per mount: "rw", "nodev", …
  std::string type;                  // "devtmpfs"
  std::string source;
  std::vector<std::string> super_options;

  bool has_option(std::string_view name) const;
  bool has_super_option(std::string_view name) const;
  bool operator==(const Mount&) const = default;
};

// Every line of a mountinfo text. Lines that do not parse are an error that names the line number:
// a mount that is not seen is a hole.
Result<std::vector<Mount>> parse_mountinfo(std::string_view text);

// /proc/self/mountinfo below `root`.
Result<std::vector<Mount>> read_mountinfo(const Root& root);

// Other names of `path` (absolute, resolved, on mount `mount_id`) through further mounts of the
// same file system. Only what the table says: whether each name is reachable is for the caller.
std::vector<std::string> other_names(const std::vector<Mount>& mounts, unsigned mount_id,
                                     std::string_view path);

}  // namespace corral::host

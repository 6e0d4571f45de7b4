// SPDX-License-Identifier: Apache-2.0
// Further names of a device node: the same inode through another mount, or another inode with the
// same number. Rules on paths must know them all.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "host/mountinfo.h"
#include "isolate/facts.h"

namespace corral::isolate {

// Names of the node at `path` through further mounts of its file system, each checked to be the
// same inode.
std::vector<std::string> mount_names(const std::string& path,
                                     const std::vector<host::Mount>& mounts);

struct SecondNodes {
  // Parallel to the nodes asked for.
  std::vector<std::vector<std::string>> paths;
  bool complete = true;  // false: the search hit its bound outside /dev
};

// Other nodes with the number of one of `nodes`: all of /dev, and the upper folders of local mounts
// that are not nodev, breadth first and bounded so that a start stays fast.
SecondNodes find_second_nodes(std::span<const Node> nodes, const std::vector<host::Mount>& mounts);

// The first folder above `path` in which programs make files: anyone may write there (/tmp), or the
// working folder or home lies below it, or, for a user, it is his own. Empty: none.
std::string shared_folder_above(const std::string& path);

}  // namespace corral::isolate

// SPDX-License-Identifier: Apache-2.0
#include "isolate/cgroup1.h"

#include <fmt/format.h>

#include "base/file.h"

namespace corral::isolate {

std::string deny_line(const Node& node) {
  if (node.type == Node::Type::file || node.major == 0) return {};
  return fmt::format("{} {}:{} rwm", node.type == Node::Type::block ? 'b' : 'c', node.major,
                     node.minor);
}

Result<void> deny_devices(const std::string& group, std::span<const Node> nodes) {
  for (const Node& node : nodes)
    if (const std::string line = deny_line(node); !line.empty())
      CORRAL_CHECK(write_existing(group + "/devices.deny", line));
  return {};
}

}  // namespace corral::isolate

// SPDX-License-Identifier: Apache-2.0
#include "host/numa.h"

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/file.h"
#include "host/number_list.h"

namespace corral::host {
namespace {

constexpr std::string_view kFolder = "/sys/devices/system/node";

Result<std::vector<unsigned>> read_list(const Root& root, const std::string& file) {
  const std::string path = root.path(std::string(kFolder) + "/" + file);
  CORRAL_TRY(const std::string text, read_file(path));
  auto numbers = parse_number_list(text);
  if (!numbers) return fail(path + ": " + numbers.error().what);
  return numbers;
}

}  // namespace

Result<std::vector<NumaNode>> numa_nodes(const Root& root) {
  const auto online = read_list(root, "online");
  if (!online && online.error().sys == ENOENT) return std::vector<NumaNode>();
  if (!online) return std::unexpected(online.error());
  CORRAL_TRY(const std::vector<unsigned> with_memory, read_list(root, "has_memory"));
  std::vector<NumaNode> nodes;
  for (const unsigned number : *online) {
    CORRAL_TRY(std::vector<unsigned> cpus,
               read_list(root, "node" + std::to_string(number) + "/cpulist"));
    nodes.push_back({.number = number,
                     .cpus = std::move(cpus),
                     .has_memory = std::ranges::binary_search(with_memory, number)});
  }
  return nodes;
}

}  // namespace corral::host

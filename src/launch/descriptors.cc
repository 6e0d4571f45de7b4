// SPDX-License-Identifier: Apache-2.0
#include "launch/descriptors.h"

#include <fcntl.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/text.h"

namespace corral::launch {

namespace {

// Every open descriptor with its flags (FD_CLOEXEC), ascending.
std::vector<std::pair<int, int>> descriptors_with_flags() {
  std::vector<std::pair<int, int>> out;
  const auto names = list_folder("/proc/self/fd");
  if (!names) return out;
  for (const std::string& name : *names) {
    const auto fd = parse_number<int>(name);
    const int flags = fd ? ::fcntl(*fd, F_GETFD) : -1;
    // The listing's own descriptor is among them and closed by now.
    if (flags >= 0) out.emplace_back(*fd, flags);
  }
  std::ranges::sort(out);
  return out;
}

}  // namespace

std::vector<int> open_descriptors() {
  std::vector<int> out;
  for (const auto& [fd, flags] : descriptors_with_flags())
    if ((flags & FD_CLOEXEC) == 0) out.push_back(fd);
  return out;
}

void close_on_exec_except(const std::vector<int>& kept) {
  for (const auto& [fd, flags] : descriptors_with_flags())
    if (!std::ranges::binary_search(kept, fd)) ::fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
}

}  // namespace corral::launch

// SPDX-License-Identifier: Apache-2.0
#include "launch/descriptors.h"

#include <fcntl.h>

#include <algorithm>

#include "base/file.h"
#include "base/text.h"

namespace corral::launch {

std::vector<int> open_descriptors() {
  std::vector<int> out;
  const auto names = list_folder("/proc/self/fd");
  if (!names) return out;
  for (const std::string& name : *names)
    // The listing's own descriptor is among them and closed by now.
    if (const auto fd = parse_number<int>(name); fd && ::fcntl(*fd, F_GETFD) >= 0)
      out.push_back(*fd);
  std::ranges::sort(out);
  return out;
}

void close_on_exec_except(const std::vector<int>& kept) {
  for (const int fd : open_descriptors()) {
    if (std::ranges::binary_search(kept, fd)) continue;
    const int flags = ::fcntl(fd, F_GETFD);
    if (flags >= 0) ::fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
  }
}

}  // namespace corral::launch

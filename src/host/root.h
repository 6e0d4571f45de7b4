// SPDX-License-Identifier: Apache-2.0
// Where a host is read from: "/" for the live one, a folder for a captured or simulated one.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace corral::host {

class Root {
 public:
  Root() = default;
  // `prefix` without a trailing slash; empty means "/".
  explicit Root(std::string prefix) : prefix_(std::move(prefix)) {}

  // `absolute` begins with "/": "/proc/driver/nvidia/version".
  std::string path(std::string_view absolute) const { return prefix_ + std::string(absolute); }
  const std::string& prefix() const { return prefix_; }

 private:
  std::string prefix_;
};

}  // namespace corral::host

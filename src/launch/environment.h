// SPDX-License-Identifier: Apache-2.0
// The job's environment: the caller's, with changes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace corral::launch {

class Environment {
 public:
  // From environ-like entries "NAME=value"; entries without '=' are kept as they are.
  explicit Environment(const char* const* entries);

  std::optional<std::string> get(std::string_view name) const;
  void set(std::string_view name, std::string_view value);
  void unset(std::string_view name);
  // Puts `entry` first in a colon-separated list; an unset or empty list becomes `entry` alone,
  // since an empty field would mean the current folder.
  void prepend_path(std::string_view name, std::string_view entry);

  const std::vector<std::string>& entries() const { return entries_; }

 private:
  std::vector<std::string> entries_;
};

}  // namespace corral::launch

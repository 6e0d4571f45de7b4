// SPDX-License-Identifier: Apache-2.0
// The hand-made hosts of tests/fixtures/hosts, and hosts that a test makes up.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "host/root.h"

namespace corral::tests {

inline host::Root fixture_host(std::string_view name) {
  const auto folder = std::filesystem::path(__FILE__).parent_path() / "../../fixtures/hosts" / name;
  return host::Root(std::filesystem::canonical(folder).string());
}

// An empty host in a folder of its own, gone with the test.
class MadeHost {
 public:
  MadeHost() {
    std::string folder = (std::filesystem::temp_directory_path() / "corral-host-XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("mkdtemp " + folder);
    root_ = host::Root(folder);
  }
  ~MadeHost() { std::filesystem::remove_all(root_.prefix()); }
  MadeHost(const MadeHost&) = delete;
  MadeHost& operator=(const MadeHost&) = delete;

  void write(std::string_view path, std::string_view text) const {
    const std::filesystem::path file = root_.path(path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
  }
  // A folder in the place of a file: opening it for reading works, reading it does not.
  void write_unreadable(std::string_view path) const {
    std::filesystem::create_directories(root_.path(path));
  }

  const host::Root& root() const { return root_; }

 private:
  host::Root root_;
};

}  // namespace corral::tests

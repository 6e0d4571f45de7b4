// SPDX-License-Identifier: Apache-2.0
// Follows the traces of a job that runs: each look reads what was appended since the last one, and
// nothing twice.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trace/reader.h"

namespace corral::trace {

class FolderTail {
 public:
  explicit FolderTail(std::string folder) : folder_(std::move(folder)) {}

  // The processes with context events since the last look: those events, every cuInit so far
  // without its stack, and the modules so far. A file that cannot be read, or not any further, is
  // left alone from then on: the reader of the whole folder will name it. Reads at most 1 MiB of a
  // file and 16 MiB in all; the rest comes with the next looks.
  std::vector<ProcessTrace> look();

 private:
  struct Followed {
    std::uint64_t offset = 0;  // up to which the file was read
    std::string header;        // the file's, by which the rest is parsed
    std::vector<Event> inits{};
    std::map<std::uint32_t, Module> modules{};
    bool left_alone = false;
  };
  // Reads what is new of one file; at most `room_bytes`, which it takes from.
  Result<ProcessTrace> read_more(const std::string& name, Followed& file,
                                 std::uint64_t& room_bytes);

  std::string folder_;
  std::map<std::string, Followed> files_;
};

}  // namespace corral::trace

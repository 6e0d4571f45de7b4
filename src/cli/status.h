// SPDX-License-Identifier: Apache-2.0
// --status-fd: one JSON object a line, for the program that started Corral.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string_view>

#include "launch/job.h"
#include "snapshot/run.h"

namespace corral::cli {

class Status {
 public:
  // The descriptor stays the caller's, and is not passed on to the job.
  explicit Status(std::optional<int> fd);

  // {"event":"started","pid":…,"enforced":…}
  void started(pid_t pid, std::string_view enforced) const;
  // {"event":"failed","code":125,"error":…,"hint":…}
  void failed(const launch::StartError& error) const;
  // {"event":"ended","code":…,"signal":…,"strays":N}
  void ended(const snapshot::Exit& exit, unsigned strays) const;

 private:
  std::optional<int> fd_;
};

}  // namespace corral::cli

// SPDX-License-Identifier: Apache-2.0
// The options of `corral run`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/command.h"
#include "cli/watch_options.h"
#include "isolate/plan.h"
#include "launch/allocator_options.h"
#include "mps/share.h"

namespace corral::cli {

struct RunOptions : WatchOptions {
  std::optional<std::string> gpus;  // nullopt: watch only
  std::vector<isolate::Method> methods;
  bool tight = false;
  bool allow_unenforced = false;
  bool quiet_idle = false;
  std::optional<mps::Share> mps;
  launch::AllocatorSettings allocators;  // of all frameworks together
  std::vector<std::string> refuse;
  isolate::LimitsRequest limits;
  bool dry_run = false;
  bool print_commands = false;
  bool exec = false;
  bool observe = true;
};

// The error is a usage error (exit 64); its text names the option and the value.
Result<RunOptions> parse_run_options(const Arguments& arguments);

std::string run_help();

}  // namespace corral::cli

// SPDX-License-Identifier: Apache-2.0
// The options of `corral run`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/command.h"
#include "isolate/plan.h"

namespace corral::cli {

enum class ColorWhen { automatic, always, never };

struct RunOptions {
  std::optional<std::string> gpus;  // nullopt: watch only
  isolate::Method method = isolate::Method::automatic;
  bool tight = false;
  bool allow_unenforced = false;
  std::vector<std::string> refuse;
  bool dry_run = false;
  bool exec = false;
  bool observe = true;
  bool strict = false;
  bool json = false;
  bool quiet = false;
  bool verbose = false;
  double grace_s = 2;
  double interval_s = 0.1;
  std::optional<int> status_fd;
  std::string report;  // empty: none
  ColorWhen color = ColorWhen::automatic;
  std::vector<std::string> job;
};

// The error is a usage error (exit 64); its text names the option and the value.
Result<RunOptions> parse_run_options(const Arguments& arguments);

std::string run_help();

// Whether the help was asked for among the options.
bool wants_help(const Arguments& arguments);

}  // namespace corral::cli

// SPDX-License-Identifier: Apache-2.0
// The options of `corral power`.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "cli/command.h"

namespace corral::cli {

struct PowerOptions {
  enum class Verb { show, cap };
  Verb verb = Verb::show;
  std::string gpus = "all";
  unsigned milliwatts = 0;  // cap: what to set
  bool json = false;
  bool dry_run = false;
  bool quiet = false;
  std::vector<std::string> job;  // cap: empty: the limit stays
};

// The error is a usage error (exit 64); its text names the option and the value.
Result<PowerOptions> parse_power_options(const Arguments& arguments);

std::string power_help();

}  // namespace corral::cli

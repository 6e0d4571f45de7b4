// SPDX-License-Identifier: Apache-2.0
// The options of `corral mps`.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "cli/command.h"
#include "isolate/plan.h"

namespace corral::cli {

struct MpsOptions {
  enum class Verb { start, status, stop };
  Verb verb = Verb::status;
  std::string gpus = "all";
  std::vector<isolate::Method> methods = {isolate::Method::automatic};  // start
  bool allow_unenforced = false;                                        // start
  bool force = false;                                                   // stop
  bool json = false;                                                    // status
};

// The error is a usage error (exit 64); its text names the option and the value.
Result<MpsOptions> parse_mps_options(const Arguments& arguments);

std::string mps_help();

}  // namespace corral::cli

// SPDX-License-Identifier: Apache-2.0
// How a job is made observable: the shim beside this program, the real driver, and the run's
// folder.
#pragma once

#include <optional>
#include <string>

#include "launch/environment.h"
#include "launch/run_folder.h"

namespace corral::cli {

struct Observation {
  std::optional<launch::RunFolder> folder;  // nullopt: the job is not observed
  std::string driver;                       // path of the real driver; empty: there is none
  std::string why_not;                      // why there is no folder, when that is worth a line
};

// The shim as built (lib/corral/ beside the program) or installed (../lib/corral/).
std::optional<std::string> find_shim();

// Puts the shim first in the job's library path and names the trace folder. `wanted` false: leaves
// everything alone.
Observation observe(bool wanted, launch::Environment& environment);

}  // namespace corral::cli

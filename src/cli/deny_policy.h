// SPDX-License-Identifier: Apache-2.0
// What `corral trace --deny` tells the shim (docs/trace-format.md, "Refusing in the process").
#pragma once

#include <string>

#include "snapshot/run.h"

namespace corral::cli {

inline constexpr const char* kDenyVariable = "CORRAL_DENY";

// The variable's value: how to decide, then each GPU and MIG instance with nvidia-smi's number:
// "gpus;0=GPU-2a4d…!;1=GPU-2b68…" where '!' marks what is refused, or "rank;0=GPU-2a4d…;…". A GPU
// of unknown UUID is left out, and so never refused.
std::string deny_policy(const snapshot::Run& run);

}  // namespace corral::cli

// SPDX-License-Identifier: Apache-2.0
// Which contexts are strays: outside of what the job was given, or of what it is expected to use.
#pragma once

#include <string_view>
#include <vector>

#include "rules/rule.h"
#include "snapshot/run.h"

namespace corral::rules {

// The id under which processes stand that `--expect rank` could not judge.
inline constexpr std::string_view kExpectRank = "expect.rank";

// Sets Context::stray of every context. A context on an unknown device is never a stray. With
// Expectation::Kind::rank, a process is judged by its local rank as it was at cuInit: the device of
// that number is right, or whichever it uses when it sees only one. Returns who could not be
// judged, one entry a process.
std::vector<NotChecked> mark_strays(snapshot::Run& run);

}  // namespace corral::rules

// SPDX-License-Identifier: Apache-2.0
// Which contexts are strays: outside of what the job was given, or of what it is expected to use.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rules/rule.h"
#include "snapshot/run.h"

namespace corral::rules {

// What launchers tell a process of its place among those of this machine; the first that is set
// decides, as in the shim. RANK is not among them: it counts over all machines.
// {"LOCAL_RANK", "1"}, as it was at cuInit; nullopt: none was set.
std::optional<std::pair<std::string, std::string>> local_rank_variable(const snapshot::Init& init);

// The id under which processes stand that `--expect rank` could not judge.
inline constexpr std::string_view kExpectRank = "expect.rank";

// Sets Context::stray of every context. A context on an unknown device is never a stray. With
// Expectation::Kind::rank, a process is judged by its local rank as it was at cuInit: the device of
// that number is right, or whichever it uses when it sees only one. Returns who could not be
// judged, one entry a process.
std::vector<NotChecked> mark_strays(snapshot::Run& run);

}  // namespace corral::rules

// SPDX-License-Identifier: Apache-2.0
// Which contexts are strays: outside of what the job was given, or of what it is expected to use.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "rules/rule.h"
#include "snapshot/run.h"

namespace corral::rules {

// What launchers tell a process of its place among those of this machine; the first that is set
// decides, as in the shim. RANK is not among them: it counts over all machines.
inline constexpr std::array<const char*, 4> kLocalRankVariables = {
    "LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"};

// The id under which processes stand that `--expect rank` could not judge.
inline constexpr std::string_view kExpectRank = "expect.rank";

// Sets Context::stray of every context. A context on an unknown device is never a stray. With
// Expectation::Kind::rank, a process is judged by its local rank as it was at cuInit: the device of
// that number is right, or whichever it uses when it sees only one. Returns who could not be
// judged, one entry a process.
std::vector<NotChecked> mark_strays(snapshot::Run& run);

}  // namespace corral::rules

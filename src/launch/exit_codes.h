// SPDX-License-Identifier: Apache-2.0
// Corral's own exit codes (docs/design.md section 2); everything else is the job's.
#pragma once

namespace corral::launch {

inline constexpr int kStrayed = 3;        // --strict: the job succeeded and something strayed
inline constexpr int kUsage = 64;         // EX_USAGE of sysexits.h
inline constexpr int kCannotSetUp = 125;  // as timeout(1), env(1) and docker do
inline constexpr int kCannotExecute = 126;
inline constexpr int kNotFound = 127;
inline constexpr int kSignalBase = 128;

}  // namespace corral::launch

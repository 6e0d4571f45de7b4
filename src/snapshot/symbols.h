// SPDX-License-Identifier: Apache-2.0
// Names of the functions in native stacks, read from the modules' files after the fact.
//
// The files are the job's: anything may be at those paths by now. Only regular ELF files are read,
// with plain reads, and of them only what was asked for. A file that was changed after the stack
// was taken names nothing, and neither does a stripped function: no name is better than a wrong
// one.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "snapshot/run.h"

namespace corral::snapshot {

// Function names by offset from the load base, demangled and without their parameters' end where
// they are very long. Offsets that no symbol covers are missing, as is everything when the file
// cannot be read, is no ELF file of this machine, or was changed after `not_after_realtime_ns`.
// `debug_root`: the folder whose .build-id/ may hold the symbols of stripped files.
std::map<std::uint64_t, std::string> function_names(
    const std::string& path, const std::set<std::uint64_t>& offsets,
    std::optional<std::int64_t> not_after_realtime_ns,
    std::chrono::steady_clock::time_point deadline,
    const std::string& debug_root = "/usr/lib/debug");

// Fills NativeFrame::function of every context and init. Stops reading after `most`, with a remark
// in the run.
void name_functions(Run& run, std::chrono::milliseconds most = std::chrono::seconds(5));

// A C++ name as people write it; any other name as it is. At most about a thousand bytes.
std::string demangled(const std::string& symbol);

}  // namespace corral::snapshot

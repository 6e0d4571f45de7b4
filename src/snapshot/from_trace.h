// SPDX-License-Identifier: Apache-2.0
// From the traces of a job's processes to the Run: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "snapshot/run.h"
#include "trace/reader.h"

namespace corral::snapshot {

// Adds contexts, inits, lost records and notes about damaged files, and sets every GPU's number of
// contexts and what its listed processes allocated, to a run whose `gpus` are filled. `start_ns`:
// monotonic time that becomes second 0.
void add_traces(const std::vector<trace::ProcessTrace>& traces, std::int64_t start_ns, Run& run);

// The innermost frame in the user's own code: not in site-packages or dist-packages, the standard
// library or a frozen module; "<string>" and "<stdin>" only when no file is there. When there is
// none, the innermost frame; nullopt without frames.
std::optional<PythonFrame> culprit_of(std::span<const PythonFrame> innermost_first);

// Whether a file, as Python names it, is the user's own code in that sense.
bool is_own_code(std::string_view file);

}  // namespace corral::snapshot

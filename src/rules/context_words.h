// SPDX-License-Identifier: Apache-2.0
// How every rule speaks of a context, so that all of them say it the same way.
#pragma once

#include <string>
#include <vector>

#include "snapshot/run.h"

namespace corral::rules {

// "python3 train.py (pid 4711) made a context on GPU 0".
std::string stray_title(const snapshot::Context& context);

// Where the call came from: "cuDevicePrimaryCtxRetain called from train.py:88 in evaluate", or the
// innermost native frame, or that nothing is known.
std::string origin(const snapshot::Context& context);
// The same with another line than the context's own culprit.
std::string origin(const snapshot::Context& context, const snapshot::PythonFrame& culprit);

// How to have the kernel refuse the other GPUs, for an advice: not what the user has done already.
std::string how_to_confine(const snapshot::Run& run);

// The innermost frames of the call, Python's and then native ones, a line each.
std::vector<std::string> stack_words(const snapshot::Context& context);

}  // namespace corral::rules

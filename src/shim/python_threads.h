// SPDX-License-Identifier: Apache-2.0
// The main thread's Python state, found from another thread: everything is read through the kernel.
#pragma once

#include "shim/python_interpreter.h"

namespace corral::shim {

// Null: there is none, or it cannot be found; `reason` says why. The state belongs to a thread that
// runs: it may be freed at any moment.
const char* main_thread_state(const Interpreter& python, Reason& reason);

}  // namespace corral::shim

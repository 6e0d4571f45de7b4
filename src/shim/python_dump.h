// SPDX-License-Identifier: Apache-2.0
// The frames as the interpreter itself writes them for a crash, where its layout is not known to
// us.
#pragma once

#include "shim/python_interpreter.h"
#include "trace/writer.h"

namespace corral::shim {

// Adds the frames of the calling thread. False: nothing was added (no descriptor left, or nothing
// was written). The thread state must be the calling thread's, and must not go away meanwhile.
bool add_dumped_frames(const Interpreter& python, void* thread_state, trace::RecordBuilder& record);

}  // namespace corral::shim

// SPDX-License-Identifier: Apache-2.0
// Python frames of the calling thread and of the main thread, read without the interpreter's help.
#pragma once

#include "trace/writer.h"

namespace corral::shim {

// Adds the fields python source, python frames and python omitted to the record.
void add_python_stack(trace::RecordBuilder& record);

// On any other thread than the main one: the same of the main thread, which runs meanwhile. Its
// line is often the one that set the calling thread to work, a loader's loop or a framework's
// start. Costs hundreds of microseconds.
void add_main_thread_stack(trace::RecordBuilder& record);

}  // namespace corral::shim

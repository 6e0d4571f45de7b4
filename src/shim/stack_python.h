// SPDX-License-Identifier: Apache-2.0
// The calling thread's Python frames, read without the interpreter's help.
#pragma once

#include "trace/writer.h"

namespace corral::shim {

// Adds the fields python source, python frames and python omitted to the record.
void add_python_stack(trace::RecordBuilder& record);

}  // namespace corral::shim

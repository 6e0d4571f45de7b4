// SPDX-License-Identifier: Apache-2.0
// The interpreter of this process: which one, what it exports, and where it keeps things.
#pragma once

#include "shim/python_layout.h"

namespace corral::shim {

// Why something about Python is not known; null: it is.
using Reason = const char*;

struct Interpreter {
  unsigned major;
  unsigned minor;
  // Each only reads a value of the thread or of the runtime, takes no lock, and needs no GIL.
  void* (*this_thread_state)();
  void* (*attached_thread_state)();  // of the thread that runs Python code now; null: not exported
  void* (*main_interpreter)();       // null: not exported
  void (*dump_traceback)(int fd, void* thread_state);  // null: not exported
  const void* code_type;
  const void* text_type;
  const void* bytes_type;
  PythonLayout layout;
};

// False: there is no interpreter (yet).
bool find_interpreter(Interpreter& python);

// Fills in the layout and the types; null, or why they are not known.
Reason choose_layout(Interpreter& python);

}  // namespace corral::shim

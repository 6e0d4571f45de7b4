// SPDX-License-Identifier: Apache-2.0
// Where CPython keeps what a traceback needs, by version: byte offsets in its structs on 64-bit
// machines.
//
// 3.8-3.10: the thread state points to a PyFrameObject, frames are linked by f_back.
// 3.11, 3.12: the thread state points to a _PyCFrame, which points to a _PyInterpreterFrame, linked
//   by `previous`; from 3.12 on some frames in the chain only mark entries from C and hold no code.
// 3.13, 3.14: the thread state points to the frame, and the interpreter publishes its own offsets
// in
//   _Py_DebugOffsets at the beginning of _PyRuntime: those are used, see published_layout().
// 3.14: the frame's reference to its code has tags in its low bits. Free-threaded, each thread may
//   run its own copy of a function's bytecode: the frame says which, the code object where it is.
#pragma once

#include <stdint.h>

namespace corral::shim {

enum class LineTable {
  lnotab,     // up to 3.9: pairs of unsigned byte step and signed line step
  ranges,     // 3.10: the same pairs, -128 meaning "no line"
  locations,  // from 3.11: entries of one to many bytes, with columns
};

constexpr uint32_t kNone = 0xFFFFFFFF;
// Frames whose owner has this value or a higher one mark an entry and hold no code: 3, from 3.12 on
// the C stack; in 3.14 3 is the interpreter and 4 the C stack.
constexpr uint8_t kFirstOwnerWithoutCode = 3;

struct PythonLayout {
  unsigned minor;  // of Python 3
  bool free_threaded;
  uint32_t thread_frame;  // in PyThreadState: the frame, or the _PyCFrame
  uint32_t cframe_frame;  // in _PyCFrame; kNone: there is none in between
  uint32_t frame_code;
  uint32_t frame_previous;
  uint32_t frame_instruction;  // a pointer into the code with `locations`, else an int
  uint32_t frame_owner;        // a byte; kNone: no such field
  uint32_t code_file;
  uint32_t code_name;
  uint32_t code_first_line;
  uint32_t code_lines;
  uint32_t code_instructions;  // where the bytecode begins; kNone: f_lasti is an index already
  uint32_t ascii_bytes;        // size of PyASCIIObject; text of ASCII strings begins there
  uint32_t compact_bytes;      // size of PyCompactUnicodeObject; text of other strings begins there
  LineTable lines;
  // Of the list of the interpreter's threads, to find the main thread's state.
  uint32_t interpreter_threads;  // in PyInterpreterState: the first thread state
  uint32_t thread_id;            // in PyThreadState: its pthread_t
  uint32_t thread_next = 8;
  uint32_t thread_interpreter = 16;
  // The same in all builds with the GIL.
  uint32_t object_type = 8;      // PyObject.ob_type
  uint32_t var_size = 16;        // PyVarObject.ob_size
  uint32_t bytes_text = 32;      // PyBytesObject.ob_sval
  uint32_t text_length = 16;     // PyASCIIObject.length
  uint32_t text_state = 32;      // PyASCIIObject.state, 32 bits: from bit `text_kind` on kind (3
  uint32_t text_kind = 2;        //   bits), compact (1), ascii (1)
  uint32_t code_tag = 0;         // bits of the frame's reference to its code that are no address
  uint32_t frame_copy = kNone;   // an int: which copy of the bytecode; kNone: there is only one
  uint32_t code_copies = kNone;  // a pointer to the number of copies, followed by pointers to them
};

// Of the versions that publish none themselves.
constexpr PythonLayout kPythonLayouts[] = {
    {.minor = 8,
     .free_threaded = false,
     .thread_frame = 24,
     .cframe_frame = kNone,
     .frame_code = 32,
     .frame_previous = 24,
     .frame_instruction = 104,
     .frame_owner = kNone,
     .code_file = 104,
     .code_name = 112,
     .code_first_line = 40,
     .code_lines = 120,
     .code_instructions = kNone,
     .ascii_bytes = 48,
     .compact_bytes = 72,
     .lines = LineTable::lnotab,
     .interpreter_threads = 8,
     .thread_id = 176},
    {.minor = 9,
     .free_threaded = false,
     .thread_frame = 24,
     .cframe_frame = kNone,
     .frame_code = 32,
     .frame_previous = 24,
     .frame_instruction = 104,
     .frame_owner = kNone,
     .code_file = 104,
     .code_name = 112,
     .code_first_line = 40,
     .code_lines = 120,
     .code_instructions = kNone,
     .ascii_bytes = 48,
     .compact_bytes = 72,
     .lines = LineTable::lnotab,
     .interpreter_threads = 8,
     .thread_id = 176},
    {.minor = 10,
     .free_threaded = false,
     .thread_frame = 24,
     .cframe_frame = kNone,
     .frame_code = 32,
     .frame_previous = 24,
     .frame_instruction = 96,
     .frame_owner = kNone,
     .code_file = 104,
     .code_name = 112,
     .code_first_line = 40,
     .code_lines = 120,
     .code_instructions = kNone,
     .ascii_bytes = 48,
     .compact_bytes = 72,
     .lines = LineTable::ranges,
     .interpreter_threads = 8,
     .thread_id = 176},
    {.minor = 11,
     .free_threaded = false,
     .thread_frame = 56,
     .cframe_frame = 8,
     .frame_code = 32,
     .frame_previous = 48,
     .frame_instruction = 56,
     .frame_owner = kNone,
     .code_file = 112,
     .code_name = 120,
     .code_first_line = 72,
     .code_lines = 136,
     .code_instructions = 184,
     .ascii_bytes = 48,
     .compact_bytes = 72,
     .lines = LineTable::locations,
     .interpreter_threads = 16,
     .thread_id = 152},
    {.minor = 12,
     .free_threaded = false,
     .thread_frame = 56,
     .cframe_frame = 0,
     .frame_code = 0,
     .frame_previous = 8,
     .frame_instruction = 56,
     .frame_owner = 70,
     .code_file = 112,
     .code_name = 120,
     .code_first_line = 68,
     .code_lines = 136,
     .code_instructions = 192,
     .ascii_bytes = 40,
     .compact_bytes = 56,
     .lines = LineTable::locations,
     .interpreter_threads = 72,
     .thread_id = 136},
};

}  // namespace corral::shim

// SPDX-License-Identifier: Apache-2.0
// Where CPython keeps what a traceback needs, by version: byte offsets in its structs on 64-bit
// machines.
//
// 3.8-3.10: the thread state points to a PyFrameObject, frames are linked by f_back.
// 3.11, 3.12: the thread state points to a _PyCFrame, which points to a _PyInterpreterFrame, linked
//   by `previous`; from 3.12 on some frames in the chain only mark entries from C and hold no code.
// 3.13: the thread state points to the frame, and the interpreter publishes its own offsets in
//   _Py_DebugOffsets at the beginning of _PyRuntime: those are used, see read_debug_offsets().
#pragma once

#include <stdint.h>

namespace corral::shim {

enum class LineTable {
  lnotab,     // up to 3.9: pairs of unsigned byte step and signed line step
  ranges,     // 3.10: the same pairs, -128 meaning "no line"
  locations,  // from 3.11: entries of one to many bytes, with columns
};

constexpr uint32_t kNone = 0xFFFFFFFF;
constexpr uint8_t kOwnedByCStack = 3;  // value of the frame's owner: marks an entry, holds no code

struct PythonLayout {
  unsigned minor;         // of Python 3
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
};

// In every version: PyObject.ob_type, PyVarObject.ob_size, PyBytesObject.ob_sval, and of
// PyASCIIObject length and the bit field `state` (kind: bits 2-4, compact: 5, ascii: 6).
constexpr uint32_t kObjectType = 8;
constexpr uint32_t kVarSize = 16;
constexpr uint32_t kBytesText = 32;
constexpr uint32_t kTextLength = 16;
constexpr uint32_t kTextState = 32;

constexpr PythonLayout kPythonLayouts[] = {
    {.minor = 8,
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
     .lines = LineTable::lnotab},
    {.minor = 9,
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
     .lines = LineTable::lnotab},
    {.minor = 10,
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
     .lines = LineTable::ranges},
    {.minor = 11,
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
     .lines = LineTable::locations},
    {.minor = 12,
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
     .lines = LineTable::locations},
    {.minor = 13,
     .thread_frame = 72,
     .cframe_frame = kNone,
     .frame_code = 0,
     .frame_previous = 8,
     .frame_instruction = 56,
     .frame_owner = 70,
     .code_file = 112,
     .code_name = 120,
     .code_first_line = 68,
     .code_lines = 136,
     .code_instructions = 200,
     .ascii_bytes = 40,
     .compact_bytes = 56,
     .lines = LineTable::locations},
};

}  // namespace corral::shim

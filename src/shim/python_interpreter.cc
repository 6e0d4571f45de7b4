// SPDX-License-Identifier: Apache-2.0
#include "shim/python_interpreter.h"

#include <string.h>

#include "shim/safe_read.h"
#include "shim/symbols.h"

namespace corral::shim {
namespace {

template <class Function>
void look_up(Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(find_symbol(RTLD_DEFAULT, name));
}

void read_version(Interpreter& python) {
  // Exported since 3.11. Older ones only have the text, "3.10.13 (main, …)".
  if (const void* const number = find_symbol(RTLD_DEFAULT, "Py_Version")) {
    unsigned long value = 0;
    safe_read_all(&value, number, sizeof value);
    python.major = static_cast<unsigned>(value >> 24) & 0xFF;
    python.minor = static_cast<unsigned>(value >> 16) & 0xFF;
    return;
  }
  const char* (*version)() = nullptr;
  look_up(version, "Py_GetVersion");
  if (version == nullptr) return;
  const char* at = version();
  const auto next_number = [&at](unsigned& number) {
    for (; *at >= '0' && *at <= '9'; ++at) number = number * 10 + static_cast<unsigned>(*at - '0');
    if (*at == '.') ++at;
  };
  next_number(python.major);
  next_number(python.minor);
}

// Where the numbers of each struct begin in _Py_DebugOffsets, counted from the number after the
// cookie: version, free_threaded, runtime_state (3), interpreter_state, …
struct Positions {
  unsigned interpreter, thread, frame, code, object, bytes, text;
};
constexpr Positions kPositions13 = {
    .interpreter = 5, .thread = 18, .frame = 27, .code = 33, .object = 43, .bytes = 63, .text = 66};
constexpr Positions kPositions14 = {
    .interpreter = 5, .thread = 21, .frame = 30, .code = 38, .object = 49, .bytes = 73, .text = 76};

// The layout that 3.13 and 3.14 publish at the beginning of _PyRuntime.
Reason published_layout(unsigned minor, PythonLayout& layout) {
  constexpr size_t kNumbers = 80;
  struct {
    char cookie[8];
    uint64_t numbers[kNumbers];
  } published;
  const void* const runtime = find_symbol(RTLD_DEFAULT, "_PyRuntime");
  if (runtime == nullptr || !safe_read_all(&published, runtime, sizeof published)) {
    return "no _PyRuntime";
  }
  if (memcmp(published.cookie, "xdebugpy", sizeof published.cookie) != 0) {
    return "no debug offsets";
  }
  if (published.numbers[0] >> 16 != (0x0300U | minor)) return "debug offsets of another version";
  bool all_plausible = true;
  const auto number = [&](unsigned position) {
    const uint64_t value = published.numbers[position];
    if (value >= 1U << 24) all_plausible = false;
    return static_cast<uint32_t>(value);
  };
  const Positions at = minor == 13 ? kPositions13 : kPositions14;
  layout.minor = minor;
  layout.free_threaded = published.numbers[1] != 0;
  layout.interpreter_threads = number(at.interpreter + 3);
  layout.thread_next = number(at.thread + 2);
  layout.thread_interpreter = number(at.thread + 3);
  layout.thread_frame = number(at.thread + 4);
  layout.thread_id = number(at.thread + 5);
  layout.cframe_frame = kNone;
  layout.frame_previous = number(at.frame + 1);
  layout.frame_code = number(at.frame + 2);
  layout.frame_instruction = number(at.frame + 3);
  layout.frame_owner = number(at.frame + 5);
  layout.code_file = number(at.code + 1);
  layout.code_name = number(at.code + 2);
  layout.code_lines = number(at.code + 4);
  layout.code_first_line = number(at.code + 5);
  layout.code_instructions = number(at.code + 9);
  layout.object_type = number(at.object + 1);
  layout.var_size = number(at.bytes + 1);
  layout.bytes_text = number(at.bytes + 2);
  layout.text_state = number(at.text + 1);
  layout.text_length = number(at.text + 2);
  layout.ascii_bytes = number(at.text + 3);
  layout.compact_bytes = layout.ascii_bytes + 16;  // its utf8_length and utf8
  layout.lines = LineTable::locations;
  if (minor >= 14) {
    layout.code_tag = 3;
    if (layout.free_threaded) {
      layout.text_kind = 8;  // `interned` is a whole byte there
      layout.frame_copy = number(at.frame + 7);
      layout.code_copies = number(at.code + 10);
    }
  }
  return all_plausible ? nullptr : "debug offsets that cannot be";
}

}  // namespace

bool find_interpreter(Interpreter& python) {
  look_up(python.this_thread_state, "PyGILState_GetThisThreadState");
  if (python.this_thread_state == nullptr) return false;
  look_up(python.attached_thread_state, "_PyThreadState_UncheckedGet");
  if (python.attached_thread_state == nullptr) {  // its name since 3.13
    look_up(python.attached_thread_state, "PyThreadState_GetUnchecked");
  }
  look_up(python.main_interpreter, "PyInterpreterState_Main");
  look_up(python.dump_traceback, "_Py_DumpTraceback");
  python.code_type = find_symbol(RTLD_DEFAULT, "PyCode_Type");
  python.text_type = find_symbol(RTLD_DEFAULT, "PyUnicode_Type");
  python.bytes_type = find_symbol(RTLD_DEFAULT, "PyBytes_Type");
  read_version(python);
  return true;
}

Reason choose_layout(Interpreter& python) {
  Reason reason = "layout unknown";
  if (python.major == 3 && (python.minor == 13 || python.minor == 14)) {
    reason = published_layout(python.minor, python.layout);
  } else if (python.major == 3) {
    for (const PythonLayout& layout : kPythonLayouts) {
      if (layout.minor != python.minor) continue;
      python.layout = layout;
      reason = nullptr;
    }
  }
  if (reason != nullptr) return reason;
  if (!python.code_type || !python.text_type || !python.bytes_type) {
    return "its types are not exported";
  }
  return nullptr;
}

}  // namespace corral::shim

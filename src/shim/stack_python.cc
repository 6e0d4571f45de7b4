// SPDX-License-Identifier: Apache-2.0
// Walks the calling thread's own frames. The thread stands still inside a call, so nothing of what
// is read can change or go away, whether it holds the GIL or not; the GIL is never taken, nothing
// of the interpreter is called but PyGILState_GetThisThreadState, which only reads a thread-local
// value.
//
// What can be wrong is the layout: another build of the same version, a patched interpreter. So the
// first stack of a process is read through the kernel, which answers wrong addresses with an error,
// and every object on it must be of the type it is taken for. Only a layout that has passed is read
// directly from then on, at tens of nanoseconds a frame, and the types go on being checked.
#include "shim/stack_python.h"

#include <string.h>

#include "shim/python_layout.h"
#include "shim/safe_read.h"
#include "shim/symbols.h"

namespace corral::shim {
namespace {

constexpr size_t kInnermost = 56;
constexpr size_t kOutermost = 8;
constexpr size_t kMaxDepth = 1U << 20;  // a longer chain is taken for a broken one
constexpr size_t kFileBytes = 512;
constexpr size_t kNameBytes = 192;
constexpr size_t kMaxLineTableBytes = 1U << 20;

struct Interpreter {
  void* (*this_thread_state)();
  const void* code_type;
  const void* text_type;
  const void* bytes_type;
  PythonLayout layout;
};

enum Phase : int { kUntried, kUntested, kTested, kRefused };

// Filled once; threads that race store the same values. Nothing of it depends on the process, so a
// child of fork may keep it.
struct Walker {
  int phase;
  Interpreter interpreter;
  char source[96];
};
Walker walker;

struct Text {
  char* buffer;
  size_t capacity;
  size_t used = 0;

  void add(const char* text) {
    const size_t bytes = strnlen(text, capacity - used);
    memcpy(buffer + used, text, bytes);
    used += bytes;
  }
  void add(unsigned value) {
    char digits[12];
    size_t at = sizeof digits - 1;
    digits[at] = '\0';
    do {
      digits[--at] = static_cast<char>('0' + value % 10);
      value /= 10;
    } while (value != 0);
    add(digits + at);
  }
};

// Both ways of reading have the same form, so that the walk is written once.
struct ThroughKernel {
  static bool read(void* to, const char* from, size_t bytes) {
    return safe_read_all(to, from, bytes);
  }
};
struct Directly {
  static bool read(void* to, const char* from, size_t bytes) {
    if (from == nullptr || reinterpret_cast<uintptr_t>(from) < 4096) return false;
    memcpy(to, from, bytes);
    return true;
  }
};

template <class Memory, class T>
bool get(T& value, const char* object, uint32_t offset) {
  return Memory::read(&value, object + offset, sizeof value);
}

template <class Memory>
bool has_type(const char* object, const void* type) {
  const void* actual = nullptr;
  return object != nullptr && reinterpret_cast<uintptr_t>(object) % 8 == 0 &&
         get<Memory>(actual, object, kObjectType) && actual == type;
}

size_t put_utf8(char* to, uint32_t code_point) {
  if (code_point < 0x80) {
    to[0] = static_cast<char>(code_point);
    return 1;
  }
  // A byte of a file name that Python could not decode stands as a lone surrogate: give it back.
  if (code_point >= 0xDC80 && code_point <= 0xDCFF) {
    to[0] = static_cast<char>(code_point - 0xDC00);
    return 1;
  }
  const unsigned length = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
  for (unsigned i = length - 1; i > 0; --i) {
    to[i] = static_cast<char>(0x80 | (code_point & 0x3F));
    code_point >>= 6;
  }
  constexpr unsigned char kLead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  to[0] = static_cast<char>(kLead[length] | code_point);
  return length;
}

// The end of a file's path says more than its beginning, so that is what is kept of long ones.
template <class Memory>
bool read_text(const Interpreter& python, const char* object, bool keep_end, Text& out) {
  if (!has_type<Memory>(object, python.text_type)) return false;
  int64_t length = 0;
  uint32_t state = 0;
  if (!get<Memory>(length, object, kTextLength) || !get<Memory>(state, object, kTextState)) {
    return false;
  }
  const uint32_t width = (state >> 2) & 7;
  const bool compact = state & (1U << 5);
  const bool ascii = state & (1U << 6);
  if (length < 0 || !compact || (width != 1 && width != 2 && width != 4)) return false;
  const char* at = object + (ascii ? python.layout.ascii_bytes : python.layout.compact_bytes);
  const size_t most = out.capacity / 4;
  size_t count = static_cast<size_t>(length);
  const size_t fits = ascii ? out.capacity : most;
  if (count > fits) {
    if (keep_end) at += (count - fits) * width;
    count = fits;
  }
  for (size_t i = 0; i < count; ++i) {
    uint32_t code_point = 0;
    if (!Memory::read(&code_point, at + i * width, width)) return false;
    if (code_point > 0x10FFFF) return false;
    out.used += put_utf8(out.buffer + out.used, code_point);
  }
  return true;
}

// Bytes of a line table, read one after the other.
template <class Memory>
class TableReader {
 public:
  TableReader(const char* at, size_t bytes) : at_(at), left_(bytes) {}
  bool done() const { return left_ == 0 || failed_; }
  uint8_t next() {
    uint8_t byte = 0;
    if (left_ == 0 || !Memory::read(&byte, at_, 1)) {
      failed_ = true;
      return 0;
    }
    ++at_;
    --left_;
    return byte;
  }
  void skip(unsigned bytes) {
    while (bytes-- > 0 && !done()) next();
  }
  // Six bits a byte, lowest first; bit 6: more follow.
  uint32_t varint() {
    uint32_t value = 0;
    for (unsigned shift = 0; shift < 32; shift += 6) {
      const uint8_t byte = next();
      value |= static_cast<uint32_t>(byte & 63) << shift;
      if (!(byte & 64)) break;
    }
    return value;
  }
  int32_t signed_varint() {
    const uint32_t value = varint();
    const auto magnitude = static_cast<int32_t>(value >> 1);
    return value & 1 ? -magnitude : magnitude;
  }

 private:
  const char* at_;
  size_t left_;
  bool failed_ = false;
};

// The line of the instruction at `index` (in units of two bytes) in a 3.11 location table; 0: none.
template <class Memory>
int line_in_locations(TableReader<Memory> table, int line, int64_t index) {
  int64_t end = 0;
  while (!table.done()) {
    const uint8_t first = table.next();
    const unsigned form = (first >> 3) & 15;
    bool has_line = true;
    if (form == 15) {
      has_line = false;
    } else if (form == 14) {  // line step, end line step, column, end column
      line += table.signed_varint();
      table.varint();
      table.varint();
      table.varint();
    } else if (form == 13) {  // line step
      line += table.signed_varint();
    } else if (form >= 10) {  // small line step, two columns
      line += static_cast<int>(form) - 10;
      table.skip(2);
    } else {  // same line, columns in one byte
      table.skip(1);
    }
    end += (first & 7) + 1;
    if (index < end) return has_line ? line : 0;
  }
  return 0;
}

// The same for the pairs of bytes of 3.8 to 3.10; `at` is in bytes.
template <class Memory>
int line_in_pairs(TableReader<Memory> table, LineTable kind, int line, int64_t at) {
  int64_t address = 0;
  if (kind == LineTable::lnotab) {
    while (!table.done()) {
      address += table.next();
      if (address > at) break;
      line += static_cast<int8_t>(table.next());
    }
    return line;
  }
  while (!table.done()) {
    address += table.next();
    const auto step = static_cast<int8_t>(table.next());
    if (step != -128) line += step;
    if (at < address) return step == -128 ? 0 : line;
  }
  return 0;
}

struct Frame {
  const char* code;
  int64_t instruction;  // units of two bytes with locations, else bytes; -1: not begun
};

template <class Memory>
bool line_of(const Interpreter& python, const Frame& frame, int& line) {
  const PythonLayout& layout = python.layout;
  int first_line = 0;
  const char* table = nullptr;
  int64_t bytes = 0;
  if (!get<Memory>(first_line, frame.code, layout.code_first_line) ||
      !get<Memory>(table, frame.code, layout.code_lines) ||
      !has_type<Memory>(table, python.bytes_type) || !get<Memory>(bytes, table, kVarSize)) {
    return false;
  }
  line = first_line;
  if (frame.instruction < 0) return true;
  if (bytes < 0 || static_cast<size_t>(bytes) > kMaxLineTableBytes) return false;
  TableReader<Memory> reader(table + kBytesText, static_cast<size_t>(bytes));
  line = layout.lines == LineTable::locations
             ? line_in_locations<Memory>(reader, first_line, frame.instruction)
             : line_in_pairs<Memory>(reader, layout.lines, first_line, frame.instruction);
  return true;
}

enum class Step { frame, marker, wrong };

// What the frame at `at` is, without following it.
template <class Memory>
Step read_frame(const Interpreter& python, const char* at, Frame& frame) {
  const PythonLayout& layout = python.layout;
  if (layout.frame_owner != kNone) {
    uint8_t owner = 0;
    if (!get<Memory>(owner, at, layout.frame_owner)) return Step::wrong;
    if (owner == kOwnedByCStack) return Step::marker;
  }
  if (!get<Memory>(frame.code, at, layout.frame_code) ||
      !has_type<Memory>(frame.code, python.code_type)) {
    return Step::wrong;
  }
  if (layout.code_instructions != kNone) {
    const char* instruction = nullptr;
    if (!get<Memory>(instruction, at, layout.frame_instruction)) return Step::wrong;
    const int64_t bytes = instruction - (frame.code + layout.code_instructions);
    frame.instruction = bytes < 0 ? -1 : bytes / 2;
  } else {
    int last = -1;
    if (!get<Memory>(last, at, layout.frame_instruction)) return Step::wrong;
    // 3.10 counts instructions, 3.8 and 3.9 count bytes.
    frame.instruction = layout.lines == LineTable::ranges && last >= 0 ? last * 2 : last;
  }
  return Step::frame;
}

template <class Memory>
bool first_frame(const Interpreter& python, const char* thread_state, const char*& frame) {
  const PythonLayout& layout = python.layout;
  if (!get<Memory>(frame, thread_state, layout.thread_frame)) return false;
  if (layout.cframe_frame == kNone || frame == nullptr) return true;
  return get<Memory>(frame, frame, layout.cframe_frame);
}

// Why the walk ended; null: at the outermost frame.
using Reason = const char*;

// Calls visit(frame, number) for each frame that holds code, innermost first.
template <class Memory, class Visit>
Reason walk(const Interpreter& python, const char* thread_state, size_t& count, Visit visit) {
  const char* at = nullptr;
  count = 0;
  if (!first_frame<Memory>(python, thread_state, at)) return "the thread state is unreadable";
  for (size_t steps = 0; at != nullptr; ++steps) {
    if (steps > kMaxDepth) return "the chain of frames has no end";
    Frame frame{};
    const Step step = read_frame<Memory>(python, at, frame);
    if (step == Step::wrong) return "a frame holds no code object";
    if (step == Step::frame) {
      if (Reason wrong = visit(frame, count)) return wrong;
      ++count;
    }
    if (!get<Memory>(at, at, python.layout.frame_previous)) return "a frame is unreadable";
  }
  return nullptr;
}

// Reads file, function and line of a frame, and adds them to the record when there is one.
template <class Memory>
Reason take_frame(const Interpreter& python, const Frame& frame, trace::RecordBuilder* record) {
  char file_text[kFileBytes];
  char name_text[kNameBytes];
  Text file{file_text, sizeof file_text};
  Text name{name_text, sizeof name_text};
  const char* file_object = nullptr;
  const char* name_object = nullptr;
  int line = 0;
  if (!get<Memory>(file_object, frame.code, python.layout.code_file) ||
      !read_text<Memory>(python, file_object, true, file)) {
    return "a code object has no file name";
  }
  if (!get<Memory>(name_object, frame.code, python.layout.code_name) ||
      !read_text<Memory>(python, name_object, false, name)) {
    return "a code object has no name";
  }
  if (!line_of<Memory>(python, frame, line)) return "a code object has no line table";
  if (record != nullptr) {
    record->python_frame(line > 0 ? static_cast<uint32_t>(line) : 0, file_text, file.used,
                         name_text, name.used);
  }
  return nullptr;
}

// Reads every frame through the kernel; null: the layout is right.
Reason self_test(const Interpreter& python, const char* thread_state, size_t& count) {
  return walk<ThroughKernel>(python, thread_state, count,
                             [&](const Frame& frame, size_t number) -> Reason {
                               // The outermost of a very deep stack are like the innermost.
                               if (number >= kInnermost) return nullptr;
                               return take_frame<ThroughKernel>(python, frame, nullptr);
                             });
}

void add_frames(const Interpreter& python, const char* thread_state, trace::RecordBuilder& record) {
  size_t count = 0;
  const auto skip = [](const Frame&, size_t) -> Reason { return nullptr; };
  walk<Directly>(python, thread_state, count, skip);
  const size_t total = count;
  const size_t omitted = total > kInnermost + kOutermost ? total - kInnermost - kOutermost : 0;
  walk<Directly>(python, thread_state, count, [&](const Frame& frame, size_t number) -> Reason {
    if (omitted != 0 && number == kInnermost) record.python_omitted(omitted);
    if (number >= kInnermost && number < kInnermost + omitted) return nullptr;
    return take_frame<Directly>(python, frame, &record);
  });
}

// The offsets that 3.13 publishes at the beginning of _PyRuntime, in its order: a cookie, then
// 64-bit numbers.
Reason read_debug_offsets(PythonLayout& layout) {
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
  // Positions counted from the number after the cookie: version, free_threaded, runtime_state (3),
  // interpreter_state (13), thread_state (9), interpreter_frame (6), code_object (10), …
  constexpr size_t kThread = 2 + 3 + 13;
  constexpr size_t kFrame = kThread + 9;
  constexpr size_t kCode = kFrame + 6;
  constexpr size_t kObject = kCode + 10;
  constexpr size_t kType = kObject + 2, kTuple = kType + 4, kList = kTuple + 3, kDict = kList + 3;
  constexpr size_t kFloat = kDict + 3, kLong = kFloat + 2, kBytes = kLong + 3;
  constexpr size_t kUnicode = kBytes + 3;
  static_assert(kUnicode + 4 <= kNumbers);
  const uint64_t* const numbers = published.numbers;
  if ((numbers[0] >> 16) != (0x03000000U | layout.minor << 16) >> 16) {
    return "debug offsets of another version";
  }
  if (numbers[1] != 0) return "free-threaded build: layout unknown";
  if (numbers[kObject + 1] != kObjectType || numbers[kBytes + 1] != kVarSize ||
      numbers[kBytes + 2] != kBytesText || numbers[kUnicode + 1] != kTextState ||
      numbers[kUnicode + 2] != kTextLength) {
    return "debug offsets of another layout of objects";
  }
  layout.thread_frame = static_cast<uint32_t>(numbers[kThread + 4]);
  layout.frame_previous = static_cast<uint32_t>(numbers[kFrame + 1]);
  layout.frame_code = static_cast<uint32_t>(numbers[kFrame + 2]);
  layout.frame_instruction = static_cast<uint32_t>(numbers[kFrame + 3]);
  layout.frame_owner = static_cast<uint32_t>(numbers[kFrame + 5]);
  layout.code_file = static_cast<uint32_t>(numbers[kCode + 1]);
  layout.code_name = static_cast<uint32_t>(numbers[kCode + 2]);
  layout.code_lines = static_cast<uint32_t>(numbers[kCode + 4]);
  layout.code_first_line = static_cast<uint32_t>(numbers[kCode + 5]);
  layout.code_instructions = static_cast<uint32_t>(numbers[kCode + 9]);
  layout.ascii_bytes = static_cast<uint32_t>(numbers[kUnicode + 3]);
  layout.compact_bytes = layout.ascii_bytes + 16;  // its utf8_length and utf8
  return nullptr;
}

struct Version {
  unsigned major;
  unsigned minor;
};

Version read_version() {
  // Exported since 3.11. Older ones only have the text, "3.10.13 (main, …)".
  if (const void* const number = find_symbol(RTLD_DEFAULT, "Py_Version")) {
    unsigned long value = 0;
    safe_read_all(&value, number, sizeof value);
    return {.major = static_cast<unsigned>(value >> 24) & 0xFF,
            .minor = static_cast<unsigned>(value >> 16) & 0xFF};
  }
  const auto version =
      reinterpret_cast<const char* (*)()>(find_symbol(RTLD_DEFAULT, "Py_GetVersion"));
  if (version == nullptr) return {.major = 0, .minor = 0};
  unsigned parts[2] = {0, 0};
  const char* at = version();
  for (unsigned& part : parts) {
    for (; *at >= '0' && *at <= '9'; ++at) part = part * 10 + static_cast<unsigned>(*at - '0');
    if (*at == '.') ++at;
  }
  return {.major = parts[0], .minor = parts[1]};
}

Reason choose_layout(Version version, Interpreter& python) {
  if (version.major != 3) return "layout unknown";
  for (const PythonLayout& layout : kPythonLayouts) {
    if (layout.minor != version.minor) continue;
    python.layout = layout;
    return layout.minor >= 13 ? read_debug_offsets(python.layout) : nullptr;
  }
  return "layout unknown";
}

int refuse(Walker& result, Version version, Reason reason) {
  Text text{result.source, sizeof result.source - 1};
  text.add("Python ");
  text.add(version.major);
  text.add(".");
  text.add(version.minor);
  text.add(": ");
  text.add(reason);
  result.source[text.used] = '\0';
  return kRefused;
}

// Finds the interpreter; the phase that this leads to. kUntried: there is none yet.
int find_interpreter(Walker& result) {
  Interpreter& python = result.interpreter;
  python.this_thread_state =
      reinterpret_cast<void* (*)()>(find_symbol(RTLD_DEFAULT, "PyGILState_GetThisThreadState"));
  if (python.this_thread_state == nullptr) return kUntried;
  python.code_type = find_symbol(RTLD_DEFAULT, "PyCode_Type");
  python.text_type = find_symbol(RTLD_DEFAULT, "PyUnicode_Type");
  python.bytes_type = find_symbol(RTLD_DEFAULT, "PyBytes_Type");
  const Version version = read_version();
  if (Reason reason = choose_layout(version, python)) return refuse(result, version, reason);
  if (!python.code_type || !python.text_type || !python.bytes_type) {
    return refuse(result, version, "its types are not exported");
  }
  Text text{result.source, sizeof result.source - 1};
  text.add("walker 3.");
  text.add(version.minor);
  result.source[text.used] = '\0';
  return kUntested;
}

void add_source(trace::RecordBuilder& record, const char* text) {
  record.text(wire::kPythonSource, text, strlen(text));
}

// Publishes a walker of this thread; the first one wins, and later ones are the same.
void publish(const Walker& found, int phase) {
  static int writing;
  if (__atomic_exchange_n(&writing, 1, __ATOMIC_ACQUIRE) != 0) return;
  if (__atomic_load_n(&walker.phase, __ATOMIC_ACQUIRE) == kUntried) {
    walker.interpreter = found.interpreter;
    memcpy(walker.source, found.source, sizeof walker.source);
    __atomic_store_n(&walker.phase, phase, __ATOMIC_RELEASE);
  }
  __atomic_store_n(&writing, 0, __ATOMIC_RELEASE);
}

}  // namespace

void add_python_stack(trace::RecordBuilder& record) {
  Walker mine;
  int phase = __atomic_load_n(&walker.phase, __ATOMIC_ACQUIRE);
  if (phase == kUntried) {
    memset(&mine, 0, sizeof mine);
    phase = find_interpreter(mine);
    if (phase == kUntried) return add_source(record, "no interpreter");
  } else {
    mine = walker;
  }
  if (phase == kRefused) {
    publish(mine, kRefused);
    return add_source(record, mine.source);
  }
  const auto* const thread_state = static_cast<const char*>(mine.interpreter.this_thread_state());
  if (thread_state == nullptr) return add_source(record, "no Python state on this thread");
  if (phase == kUntested) {
    size_t count = 0;
    if (Reason wrong = self_test(mine.interpreter, thread_state, count)) {
      char reason[80];
      Text text{reason, sizeof reason - 1};
      text.add("self-test failed: ");
      text.add(wrong);
      reason[text.used] = '\0';
      refuse(mine, {.major = 3, .minor = mine.interpreter.layout.minor}, reason);
      publish(mine, kRefused);
      return add_source(record, mine.source);
    }
    // Without a frame nothing was tested: the next event tries again.
    if (count == 0) return add_source(record, "no Python frame on this thread");
    publish(mine, kTested);
  }
  add_source(record, mine.source);
  add_frames(mine.interpreter, thread_state, record);
}

}  // namespace corral::shim

// SPDX-License-Identifier: Apache-2.0
// The frames of a thread: walking the chain, and the file, function and line of each. Every object
// on the way must be of the type it is taken for.
#pragma once

#include "shim/python_interpreter.h"
#include "shim/python_lines.h"
#include "shim/python_memory.h"
#include "shim/text.h"
#include "trace/writer.h"

namespace corral::shim {

constexpr size_t kMaxLineTableBytes = 1U << 20;
constexpr size_t kFileBytes = 512;
constexpr size_t kNameBytes = 192;

template <class Object>
bool has_type(const Interpreter& python, const Object& object, const void* type) {
  const void* actual = nullptr;
  return reinterpret_cast<uintptr_t>(object.at()) % 8 == 0 &&
         get(actual, object, python.layout.object_type) && actual == type;
}

// The end of a file's path says more than its beginning, so that is what is kept of long ones.
template <class Memory>
bool read_text(const Memory& memory, const Interpreter& python, const char* address, bool keep_end,
               Text& out) {
  const PythonLayout& layout = python.layout;
  const typename Memory::Object object(memory, address);
  int64_t length = 0;
  uint32_t state = 0;
  if (!has_type(python, object, python.text_type) || !get(length, object, layout.text_length) ||
      !get(state, object, layout.text_state)) {
    return false;
  }
  state >>= layout.text_kind;
  const uint32_t width = state & 7;
  const bool compact = state & 8;
  const bool ascii = state & 16;
  if (length < 0 || !compact || (width != 1 && width != 2 && width != 4)) return false;
  uint32_t offset = ascii ? layout.ascii_bytes : layout.compact_bytes;
  auto count = static_cast<size_t>(length);
  const size_t fits = ascii ? out.capacity : out.capacity / 4;
  const char* skipped = address;
  if (count > fits) {
    if (keep_end) skipped += (count - fits) * width;
    count = fits;
  }
  if (ascii && width == 1) {
    const bool whole = skipped == address ? object.read(out.buffer, offset, count)
                                          : memory.read(out.buffer, skipped + offset, count);
    if (whole) out.used = count;
    return whole;
  }
  for (size_t i = 0; i < count; ++i, offset += width) {
    uint32_t code_point = 0;
    const bool there = skipped == address ? object.read(&code_point, offset, width)
                                          : memory.read(&code_point, skipped + offset, width);
    if (!there || code_point > 0x10FFFF) return false;
    out.used += put_utf8(out.buffer + out.used, code_point);
  }
  return true;
}

struct Frame {
  const char* code;
  int64_t instruction;  // units of two bytes with locations, else bytes; -1: not begun
};

template <class Memory>
bool line_of(const Memory& memory, const Interpreter& python, const Frame& frame,
             const typename Memory::Object& code, int& line) {
  const PythonLayout& layout = python.layout;
  int first_line = 0;
  const char* at = nullptr;
  if (!get(first_line, code, layout.code_first_line) || !get(at, code, layout.code_lines)) {
    return false;
  }
  const typename Memory::Object table(memory, at);
  int64_t bytes = 0;
  if (!has_type(python, table, python.bytes_type) || !get(bytes, table, layout.var_size)) {
    return false;
  }
  line = first_line;
  if (frame.instruction < 0) return true;
  if (bytes < 0 || static_cast<size_t>(bytes) > kMaxLineTableBytes) return false;
  TableReader<typename Memory::Object> reader(table, layout.bytes_text, static_cast<size_t>(bytes));
  line = layout.lines == LineTable::locations
             ? line_in_locations(reader, first_line, frame.instruction)
             : line_in_pairs(reader, layout.lines, first_line, frame.instruction);
  return !reader.failed();
}

// Where the bytecode begins that a frame runs: the code's own, or one of its copies for threads.
template <class Memory>
bool bytecode_of(const Memory& memory, const PythonLayout& layout,
                 const typename Memory::Object& frame, const char* code, const char*& begin) {
  begin = code + layout.code_instructions;
  if (layout.frame_copy == kNone) return true;
  int32_t copy = 0;
  if (!get(copy, frame, layout.frame_copy)) return false;
  if (copy == 0) return true;
  const char* copies = nullptr;
  int64_t count = 0;
  return memory.read(&copies, code + layout.code_copies, sizeof copies) &&
         memory.read(&count, copies, sizeof count) && copy > 0 && copy < count &&
         memory.read(&begin, copies + sizeof count + sizeof begin * static_cast<size_t>(copy),
                     sizeof begin);
}

enum class Step { frame, marker, wrong };

// What the frame is, and the one that called it. That its code is code is not looked at yet.
template <class Memory>
Step read_frame(const Memory& memory, const Interpreter& python, const char* at, Frame& frame,
                const char*& previous) {
  const PythonLayout& layout = python.layout;
  const typename Memory::Object object(memory, at);
  if (!get(previous, object, layout.frame_previous)) return Step::wrong;
  if (layout.frame_owner != kNone) {
    uint8_t owner = 0;
    if (!get(owner, object, layout.frame_owner)) return Step::wrong;
    if (owner >= kFirstOwnerWithoutCode) return Step::marker;
  }
  uintptr_t code = 0;
  if (!get(code, object, layout.frame_code)) return Step::wrong;
  frame.code = reinterpret_cast<const char*>(code & ~uintptr_t{layout.code_tag});
  if (layout.code_instructions != kNone) {
    const char* instruction = nullptr;
    const char* begin = nullptr;
    if (!get(instruction, object, layout.frame_instruction) ||
        !bytecode_of(memory, layout, object, frame.code, begin)) {
      return Step::wrong;
    }
    frame.instruction = instruction < begin ? -1 : (instruction - begin) / 2;
  } else {
    int last = -1;
    if (!get(last, object, layout.frame_instruction)) return Step::wrong;
    // 3.10 counts instructions, 3.8 and 3.9 count bytes.
    frame.instruction = layout.lines == LineTable::ranges && last >= 0 ? last * 2 : last;
  }
  return Step::frame;
}

template <class Memory>
bool first_frame(const Memory& memory, const Interpreter& python, const char* thread_state,
                 const char*& frame) {
  const PythonLayout& layout = python.layout;
  if (!memory.read(&frame, thread_state + layout.thread_frame, sizeof frame)) return false;
  if (layout.cframe_frame == kNone || frame == nullptr) return true;
  return memory.read(&frame, frame + layout.cframe_frame, sizeof frame);
}

constexpr size_t kInnermost = 56;
constexpr size_t kOutermost = 8;

// The frames of a stack that hold code: how many, and the innermost and outermost of them.
class Chain {
 public:
  size_t frames() const { return frames_; }
  // Frames of the middle that are not there.
  size_t omitted() const {
    return frames_ > kInnermost + kOutermost ? frames_ - kInnermost - kOutermost : 0;
  }
  // Chains that met the same frames at the same instructions are the same.
  bool same_as(const Chain& other) const {
    return frames_ == other.frames_ && mark_ == other.mark_;
  }
  void add(const char* at, const Frame& frame) {
    kept_[place(frames_)] = frame;
    ++frames_;
    mix(reinterpret_cast<uint64_t>(at));
    mix(reinterpret_cast<uint64_t>(frame.code));
    mix(static_cast<uint64_t>(frame.instruction));
  }
  // 0: the innermost. Not for those that are omitted.
  const Frame& frame(size_t number) const { return kept_[place(number)]; }

 private:
  static size_t place(size_t number) {
    return number < kInnermost ? number : kInnermost + (number - kInnermost) % kOutermost;
  }
  void mix(uint64_t word) {
    mark_ = (mark_ ^ word) * 0x9E3779B97F4A7C15ULL;
    mark_ ^= mark_ >> 29;
  }

  size_t frames_ = 0;
  uint64_t mark_ = 0;
  Frame kept_[kInnermost + kOutermost];
};

// Walks to the outermost frame, or until `most` were met; null, or why neither was possible.
template <class Memory>
Reason walk(const Memory& memory, const Interpreter& python, const char* thread_state, size_t most,
            Chain& chain) {
  const char* at = nullptr;
  if (!first_frame(memory, python, thread_state, at)) return "the thread state is unreadable";
  for (size_t steps = 0; at != nullptr && chain.frames() < most; ++steps) {
    if (steps > 2 * most) return "the chain of frames has no end";  // of each two one holds code
    Frame frame{};
    const char* previous = nullptr;
    const Step step = read_frame(memory, python, at, frame, previous);
    if (step == Step::wrong) return "a frame is unreadable";
    if (step == Step::frame) chain.add(at, frame);
    at = previous;
  }
  return nullptr;
}

// Where frames go: nowhere, into a record as the calling thread's, or as the main thread's.
struct FrameSink {
  trace::RecordBuilder* record;
  wire::Tag frame_tag;
  wire::Tag omitted_tag;
};
constexpr FrameSink kNoSink = {nullptr, wire::kPythonFrame, wire::kPythonOmitted};
inline FrameSink own_frames(trace::RecordBuilder& record) {
  return {&record, wire::kPythonFrame, wire::kPythonOmitted};
}
inline FrameSink main_thread_frames(trace::RecordBuilder& record) {
  return {&record, wire::kMainThreadFrame, wire::kMainThreadOmitted};
}

// Reads file, function and line of a frame.
template <class Memory>
Reason take_frame(const Memory& memory, const Interpreter& python, const Frame& frame,
                  const FrameSink& sink) {
  char file_text[kFileBytes];
  char name_text[kNameBytes];
  Text file{file_text, sizeof file_text};
  Text name{name_text, sizeof name_text};
  const typename Memory::Object code(memory, frame.code);
  const char* file_object = nullptr;
  const char* name_object = nullptr;
  int line = 0;
  if (!has_type(python, code, python.code_type)) return "a frame holds no code object";
  if (!get(file_object, code, python.layout.code_file) ||
      !read_text(memory, python, file_object, true, file)) {
    return "a code object has no file name";
  }
  if (!get(name_object, code, python.layout.code_name) ||
      !read_text(memory, python, name_object, false, name)) {
    return "a code object has no name";
  }
  if (!line_of(memory, python, frame, code, line)) return "a code object has no line table";
  if (sink.record != nullptr) {
    sink.record->python_frame(sink.frame_tag, line > 0 ? static_cast<uint32_t>(line) : 0, file_text,
                              file.used, name_text, name.used);
  }
  return nullptr;
}

// The same for all frames that a chain has kept.
template <class Memory>
Reason take_frames(const Memory& memory, const Interpreter& python, const Chain& chain,
                   const FrameSink& sink) {
  const size_t omitted = chain.omitted();
  for (size_t i = 0; i < chain.frames(); ++i) {
    if (omitted != 0 && i == kInnermost) {
      if (sink.record != nullptr) sink.record->python_omitted(sink.omitted_tag, omitted);
      i += omitted;
    }
    if (Reason wrong = take_frame(memory, python, chain.frame(i), sink)) return wrong;
  }
  return nullptr;
}

}  // namespace corral::shim

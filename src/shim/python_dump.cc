// SPDX-License-Identifier: Apache-2.0
// _Py_DumpTraceback(fd, thread state) is made for signal handlers: it neither allocates nor takes
// the GIL. It writes into a pipe that is made for this one call, so that a handler that interrupts
// it has its own. Nobody reads meanwhile: the pipe does not block, and of a text that did not fit
// only the beginning is used. (A file in memory would be simpler, but a limit on file sizes kills.)
#include "shim/python_dump.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/symbols.h"
#include "shim/text.h"

namespace corral::shim {
namespace {

constexpr size_t kMostFrames = 64;
constexpr size_t kMaxLine = 2048;

// CPython writes other than ASCII as \xHH, \uHHHH or \UHHHHHHHH.
size_t decode(const char* from, size_t bytes, char* to, size_t capacity) {
  size_t used = 0;
  for (size_t i = 0; i < bytes && used + 4 <= capacity;) {
    size_t digits = 0;
    if (from[i] == '\\' && i + 1 < bytes) {
      const char form = from[i + 1];
      digits = form == 'x' ? 2 : form == 'u' ? 4 : form == 'U' ? 8 : 0;
    }
    uint32_t value = 0;
    bool escaped = digits != 0 && i + 2 + digits <= bytes;
    for (size_t j = 0; escaped && j < digits; ++j) {
      const char c = from[i + 2 + j];
      if (c >= '0' && c <= '9') {
        value = value << 4 | static_cast<uint32_t>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        value = value << 4 | static_cast<uint32_t>(c - 'a' + 10);
      } else {
        escaped = false;
      }
    }
    if (!escaped || value > 0x10FFFF) {
      to[used++] = from[i++];
      continue;
    }
    used += put_utf8(to + used, value);
    i += 2 + digits;
  }
  return used;
}

// The position after the last `word` in the text; kNowhere: it is not there.
constexpr size_t kNowhere = ~size_t{0};
size_t after_last(const char* text, size_t bytes, const char* word) {
  const size_t length = strlen(word);
  for (size_t at = bytes; at >= length; --at) {
    if (memcmp(text + at - length, word, length) == 0) return at;
  }
  return kNowhere;
}

// `  File "NAME", line N in FUNCTION`; what is not known stands as ???.
bool add_line(const char* text, size_t bytes, trace::RecordBuilder& record) {
  static constexpr char kBegin[] = "  File ";
  if (bytes < sizeof kBegin || memcmp(text, kBegin, sizeof kBegin - 1) != 0) return false;
  text += sizeof kBegin - 1;
  bytes -= sizeof kBegin - 1;
  const size_t function = after_last(text, bytes, " in ");
  if (function == kNowhere) return false;
  const size_t number = after_last(text, function, ", line ");
  if (number == kNowhere) return false;
  size_t file_bytes = number - strlen(", line ");
  uint32_t line = 0;
  for (size_t i = number; i < function && text[i] >= '0' && text[i] <= '9'; ++i) {
    line = line * 10 + static_cast<uint32_t>(text[i] - '0');
  }
  if (file_bytes >= 2 && text[0] == '"' && text[file_bytes - 1] == '"') {
    ++text;
    file_bytes -= 2;
    char file_text[512];
    char name_text[192];
    const size_t shift = 1;  // of the positions that were found, by the quote
    const size_t file = decode(text, file_bytes, file_text, sizeof file_text);
    const size_t name =
        decode(text + function - shift, bytes - function, name_text, sizeof name_text);
    record.python_frame(wire::kPythonFrame, line, file_text, file, name_text, name);
    return true;
  }
  return false;
}

// Adds the frames of the text in the pipe, of which the first `trusted` bytes are whole.
size_t add_lines(int pipe, size_t trusted, trace::RecordBuilder& record) {
  char buffer[kMaxLine];
  size_t held = 0;
  size_t frames = 0;
  uint64_t more = 0;
  while (trusted > 0) {
    const size_t room = sizeof buffer - held < trusted ? sizeof buffer - held : trusted;
    const long got = room == 0 ? 0 : syscall(SYS_read, pipe, buffer + held, room);
    if (got <= 0) break;
    trusted -= static_cast<size_t>(got);
    held += static_cast<size_t>(got);
    size_t begin = 0;
    for (size_t i = 0; i < held; ++i) {
      if (buffer[i] != '\n') continue;
      if (frames == kMostFrames) {
        more += i - begin > 3 && buffer[begin + 2] == 'F' ? 1 : 0;
      } else if (add_line(buffer + begin, i - begin, record)) {
        ++frames;
      }
      begin = i + 1;
    }
    held -= begin;
    memmove(buffer, buffer + begin, held);
  }
  if (more > 0) record.python_omitted(wire::kPythonOmitted, more);
  return frames;
}

class NoCancellation {  // write(2) within the interpreter is a cancellation point
 public:
  NoCancellation()
      : set_(reinterpret_cast<int (*)(int, int*)>(
            find_symbol(RTLD_DEFAULT, "pthread_setcancelstate"))) {
    if (set_ != nullptr) set_(PTHREAD_CANCEL_DISABLE, &before_);
  }
  ~NoCancellation() {
    if (set_ != nullptr) set_(before_, nullptr);
  }
  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;

 private:
  int (*set_)(int, int*);
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace

bool add_dumped_frames(const Interpreter& python, void* thread_state,
                       trace::RecordBuilder& record) {
  int ends[2];
  if (python.dump_traceback == nullptr || syscall(SYS_pipe2, ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return false;
  }
  {
    const NoCancellation keep;
    python.dump_traceback(ends[1], thread_state);
  }
  // Small writes share a page, so a pipe that is full in pages is at least half full in bytes; what
  // follows may have holes.
  const long capacity = syscall(SYS_fcntl, ends[1], F_GETPIPE_SZ);
  const size_t frames =
      capacity > 0 ? add_lines(ends[0], static_cast<size_t>(capacity) / 2, record) : 0;
  syscall(SYS_close, ends[1]);
  syscall(SYS_close, ends[0]);
  return frames > 0;
}

}  // namespace corral::shim

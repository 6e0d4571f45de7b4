// SPDX-License-Identifier: Apache-2.0
#include "shim/refusal.h"

#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim/core.h"
#include "shim/device.h"
#include "shim/event_record.h"
#include "shim/kept_variables.h"
#include "shim/stack_native.h"
#include "shim/text.h"
#include "trace/own_code.h"

namespace corral::shim {
namespace {

// The Python frame to name, of a record under construction.
struct Culprit {
  const char* file = nullptr;
  size_t file_bytes;
  const char* function;
  size_t function_bytes;
  unsigned line;
  bool own;
  bool text;
};

void consider(const char* data, size_t bytes, Culprit& best) {
  wire::PythonFrameData frame;
  if (bytes < sizeof frame) return;
  memcpy(&frame, data, sizeof frame);
  if (bytes < sizeof frame + frame.file_bytes + frame.function_bytes) return;
  const char* const file = data + sizeof frame;
  const Culprit here = {.file = file,
                        .file_bytes = frame.file_bytes,
                        .function = file + frame.file_bytes,
                        .function_bytes = frame.function_bytes,
                        .line = frame.line,
                        .own = trace::is_own_code(file, frame.file_bytes),
                        .text = trace::is_code_text(file, frame.file_bytes)};
  const bool better = here.own && (!best.own || (best.text && !here.text));
  if (best.file == nullptr || better) best = here;
}

// As snapshot::culprit_of chooses, and rules::origin between the two threads.
Culprit culprit_in(const trace::RecordBuilder& record, bool& of_main_thread) {
  Culprit best = {};
  Culprit main = {};
  size_t at = sizeof(wire::RecordHeader) + sizeof(wire::ContextPayload);
  while (at + sizeof(wire::FieldHeader) <= record.size()) {
    wire::FieldHeader field;
    memcpy(&field, record.data() + at, sizeof field);
    at += sizeof field;
    if (field.bytes > record.size() - at) break;
    const char* const data = record.data() + at;
    if (field.tag == wire::kPythonFrame) consider(data, field.bytes, best);
    if (field.tag == wire::kMainThreadFrame) consider(data, field.bytes, main);
    at += wire::align_up(field.bytes);
  }
  of_main_thread = main.file != nullptr && (best.file == nullptr || (main.own && !best.own));
  return of_main_thread ? main : best;
}

struct Line : Text {
  void bytes(const char* data, size_t count) {
    // Names come from anybody: nothing of them may command a terminal.
    for (size_t i = 0; i < count && used < capacity; ++i) {
      const auto c = static_cast<unsigned char>(data[i]);
      buffer[used++] = c < 0x20 || c == 0x7F ? '?' : data[i];
    }
  }
  void hex(uint64_t value) {
    char digits[17] = {};
    size_t at = 16;
    do {
      digits[--at] = "0123456789abcdef"[value % 16];
      value /= 16;
    } while (value != 0);
    add(digits + at);
  }
  void uuid(const PolicyEntry& entry) {
    add(entry.is_mig ? "MIG" : "GPU");
    for (size_t i = 0; i < kUuidBytes; ++i) {
      if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) add("-");
      if (entry.uuid[i] < 16) add("0");
      hex(entry.uuid[i]);
    }
  }
};

void add_place(Line& line, const trace::RecordBuilder& record) {
  bool of_main_thread = false;
  const Culprit culprit = culprit_in(record, of_main_thread);
  if (culprit.file != nullptr) {
    line.bytes(culprit.file, culprit.file_bytes);
    line.add(":");
    line.add(culprit.line);
    line.add(" in ");
    line.bytes(culprit.function, culprit.function_bytes);
    if (of_main_thread) line.add(" (where the main thread was)");
    return;
  }
  uintptr_t address;
  LoadedModule module;
  if (capture_native(&address, 1) == 0 || !module_of(address, module)) {
    line.add("an unknown place");
    return;
  }
  line.bytes(module.path, strnlen(module.path, 512));
  if (module.path[0] == '\0') line.add("the program");
  line.add("+0x");
  line.hex(address - module.load_base);
}

// Standard error as the job left it. A pipe that nobody reads would end the job by a signal, and a
// full one would hold it: neither is written to.
void print(const char* text, size_t bytes) {
  struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  const struct timespec no_wait = {};
  if (syscall(SYS_ppoll, &room, 1, &no_wait, nullptr, 0) != 1 || room.revents != POLLOUT) return;
  syscall(SYS_write, STDERR_FILENO, text, bytes);
}

// How often each line was told in this process. What finds no place shares the last one.
struct Told {
  int pid;
  uint64_t keys[32];
  uint64_t counts[32];
};
Told told;

uint64_t count_up(uint64_t key) {
  constexpr size_t kPlaces = sizeof told.keys / sizeof *told.keys;
  const int pid = static_cast<int>(syscall(SYS_getpid));
  if (__atomic_exchange_n(&told.pid, pid, __ATOMIC_ACQ_REL) != pid) {  // a child of fork
    memset(told.keys, 0, sizeof told.keys);
    memset(told.counts, 0, sizeof told.counts);
  }
  size_t place = 0;
  for (; place < kPlaces - 1; ++place) {
    uint64_t found = __atomic_load_n(&told.keys[place], __ATOMIC_ACQUIRE);
    if (found == key) break;
    if (found == 0 && __atomic_compare_exchange_n(&told.keys[place], &found, key, false,
                                                  __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
      break;
    }
    if (found == key) break;
  }
  return __atomic_add_fetch(&told.counts[place], 1, __ATOMIC_RELAXED);
}

bool is_power_of_ten(uint64_t count) {
  while (count % 10 == 0) count /= 10;
  return count == 1;
}

uint64_t hash(const char* data, size_t bytes) {
  uint64_t value = 0x9E3779B97F4A7C15ULL;
  for (size_t i = 0; i < bytes; ++i) {
    value = (value ^ static_cast<unsigned char>(data[i])) * 0x100000001B3ULL;
  }
  return value == 0 ? 1 : value;
}

// Whether it is the first of its kind in this process, which alone is recorded.
bool tell_refusal(const char* function, const wire::DeviceId& device,
                  const trace::RecordBuilder& record) {
  const PolicyEntry* const entry = policy_entry(device);
  if (entry == nullptr) return false;
  char buffer[1536];
  Line line{{.buffer = buffer, .capacity = sizeof buffer - 160}};
  line.add(policy_is_simulated() ? "corral (SIMULATED): " : "corral: ");
  line.add("refused a context on GPU ");
  line.add(static_cast<unsigned>(entry->gpu));
  line.add(" (");
  line.uuid(*entry);
  line.add("): ");
  line.add(function);
  line.add(" from ");
  add_place(line, record);
  const uint64_t count = count_up(hash(buffer, line.used));
  if (!is_power_of_ten(count)) return false;
  line.capacity = sizeof buffer;
  line.add("; pid ");
  line.add(static_cast<unsigned>(syscall(SYS_getpid)));
  if (policy_rank() >= 0) {
    line.add(", rank ");
    line.add(static_cast<unsigned>(policy_rank()));
  }
  if (count > 1) {
    line.add("; ");
    line.add(static_cast<unsigned>(count));
    line.add(" times so far");
  }
  line.add("\n");
  print(buffer, line.used);
  return count == 1;
}

}  // namespace

bool refuse_context(const char* function, CUdevice device, uint32_t flags) {
  const KeepErrno keep;
  State* const state = ready_state();
  if (state == nullptr) return false;  // what cannot be reported is not refused
  const wire::DeviceId id = device_id(*state, device);
  if (!policy_refuses(id)) return false;
  EventRecord event(*state, wire::kContextMade);
  if (event) {
    event.builder().payload(wire::ContextPayload{.device = id,
                                                 .context = 0,
                                                 .result = kDeviceUnavailable,
                                                 .flags = flags | wire::kContextDenied});
    event.text(wire::kFunction, function);
    event.thread_name();
    add_what_changed(*state, event);
    event.stack();
    event.main_thread_stack();
  }
  if (tell_refusal(function, id, event.builder()) && event) event.write();
  return true;
}

}  // namespace corral::shim

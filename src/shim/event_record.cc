// SPDX-License-Identifier: Apache-2.0
#include "shim/event_record.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim/stack_native.h"
#include "shim/stack_python.h"

namespace corral::shim {
namespace {

constexpr size_t kNativeDepth = 96;

void write_module(State& state, uint32_t id, const LoadedModule& module) {
  alignas(8) char buffer[4608];
  trace::RecordBuilder record(buffer, sizeof buffer, wire::kModule, own_tid(),
                              trace::clock_ns(CLOCK_MONOTONIC));
  record.payload(wire::ModulePayload{.id = id, .flags = 0, .load_base = module.load_base});
  record.text(wire::kPath, module.path, strnlen(module.path, 4096));
  record.finish();
  write_record(state, record);
}

// The module's number; its record is written when it is met for the first time. Base and path make
// the key, since another file may later be loaded at the same place.
uint32_t module_id(State& state, const LoadedModule& module) {
  uint64_t key = module.load_base * 0x9E3779B97F4A7C15ULL;
  for (const char* at = module.path; *at != '\0'; ++at) {
    key = (key ^ static_cast<unsigned char>(*at)) * 0x100000001B3ULL;
  }
  if (key == 0) key = 1;
  constexpr size_t kPlaces = sizeof state.modules / sizeof *state.modules;
  for (size_t i = 0; i < kPlaces; ++i) {
    const size_t place = (key + i) % kPlaces;
    uint64_t found = __atomic_load_n(&state.modules[place], __ATOMIC_ACQUIRE);
    if (found == 0 && __atomic_compare_exchange_n(&state.modules[place], &found, key, false,
                                                  __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
      write_module(state, static_cast<uint32_t>(place), module);
      return static_cast<uint32_t>(place);
    }
    if (found == key) return static_cast<uint32_t>(place);
  }
  return wire::kNoModule;
}

}  // namespace

EventRecord::EventRecord(State& state, wire::Kind kind)
    : state_(state),
      buffer_(claim_scratch(state)),
      record_(buffer_ ? buffer_ : empty_, buffer_ ? wire::kMaxRecordBytes : sizeof empty_, kind,
              own_tid(), trace::clock_ns(CLOCK_MONOTONIC)) {}

void EventRecord::variable(const Variable& variable) {
  char text[64 + kVisibleBytes];
  size_t used = strlen(variable.name);
  memcpy(text, variable.name, used);
  if (variable.set) {
    text[used++] = '=';
    memcpy(text + used, variable.value, variable.bytes);
    used += variable.bytes;
  }
  record_.text(wire::kVariable, text, used, variable.cut);
}

void EventRecord::thread_name() {
  char name[17] = {};
  if (syscall(SYS_prctl, PR_GET_NAME, name) == 0) text(wire::kThreadName, name);
}

void EventRecord::stack() {
  uintptr_t addresses[kNativeDepth];
  wire::NativeFrameData frames[kNativeDepth];
  const size_t count = capture_native(addresses, kNativeDepth);
  for (size_t i = 0; i < count; ++i) {
    LoadedModule module;
    frames[i] = {.offset = addresses[i], .module = wire::kNoModule, .reserved = 0};
    if (!module_of(addresses[i], module)) continue;
    frames[i].module = module_id(state_, module);
    if (frames[i].module != wire::kNoModule) frames[i].offset -= module.load_base;
  }
  if (count > 0) record_.native_frames(frames, count);
  add_python_stack(record_);
}

}  // namespace corral::shim

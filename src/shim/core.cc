// SPDX-License-Identifier: Apache-2.0
// The shim runs inside other people's training jobs. The rules for everything in this folder:
//
//  * It includes trace/wire.h, trace/writer.h and libc, and nothing else of ours.
//  * The driver is called first, and its result is returned untouched. errno is kept.
//  * It never calls cuInit: that would fix the meaning of CUDA_VISIBLE_DEVICES before the program
//    has set it. It asks the driver questions only (device, UUID, state), after the driver worked.
//  * It prints nothing, ever. What cannot be recorded is counted; what cannot be counted is
//  dropped.
//  * No memory is allocated: everything has its place in `state`, zero until used. No constructor
//    does any work. No exceptions, no RTTI, no C++ runtime, no thread-local storage.
//  * No lock is held while the driver runs, and none is ever waited for without end: a signal
//    handler may interrupt any line here and call the driver itself.
//  * Nothing here is a cancellation point: system calls are made directly.
//  * A child of fork starts with an empty state and its own file, at its first event.
//  * The GIL is never taken; Python is read, not called.
//  * A repeated call (retain, small allocation) costs tens of nanoseconds; only an event that is
//    written may cost microseconds.
#include "shim/core.h"

#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim/environment.h"
#include "shim/hook.h"
#include "shim/stack_native.h"
#include "shim/stack_python.h"
#include "shim/state.h"

namespace corral::shim {
namespace {

constexpr uint32_t kMaxInitFailures = 16;
constexpr uint32_t kMaxContextFailures = 64;
constexpr uint32_t kMaxAllocationEvents = 4096;
constexpr size_t kNativeDepth = 96;
constexpr size_t kVariableBytes = 128;  // of the rank variables

// A driver's function that is asked, not hooked; looked up once.
template <class Function>
Function* ask(void*& place, const char* name) {
  void* function = __atomic_load_n(&place, __ATOMIC_ACQUIRE);
  if (__builtin_expect(function == nullptr, 0)) {
    function = driver_function(name);
    if (function == nullptr) return nullptr;
    __atomic_store_n(&place, function, __ATOMIC_RELEASE);
  }
  return reinterpret_cast<Function*>(function);
}

void* place_get_device;
void* place_get_uuid_v2;
void* place_get_uuid;
void* place_get_pci;
void* place_get_state;

// A record with the function, the thread and the stack, in a buffer of the state. Without a buffer
// every call does nothing.
class EventRecord {
 public:
  EventRecord(State& state, wire::Kind kind)
      : state_(state),
        buffer_(claim_scratch(state)),
        record_(buffer_ ? buffer_ : empty_, buffer_ ? wire::kMaxRecordBytes : sizeof empty_, kind,
                own_tid(), trace::clock_ns(CLOCK_MONOTONIC)) {}
  ~EventRecord() {
    if (buffer_) release_scratch(state_, buffer_);
  }
  EventRecord(const EventRecord&) = delete;
  EventRecord& operator=(const EventRecord&) = delete;

  explicit operator bool() const { return buffer_ != nullptr; }
  trace::RecordBuilder& builder() { return record_; }
  void text(wire::Tag tag, const char* value) { record_.text(tag, value, strlen(value)); }
  void variable(const Variable& variable);
  void thread_name();
  void stack();
  void write() {
    record_.finish();
    write_record(state_, record_);
  }

 private:
  State& state_;
  char* buffer_;
  alignas(8) char empty_[64];
  trace::RecordBuilder record_;
};

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

// What the driver says of a device. Known only once the driver is initialised, and kept then.
wire::DeviceId ask_device(CUdevice ordinal) {
  wire::DeviceId id = {};
  id.ordinal = ordinal;
  using GetUuid = CUresult(uint8_t*, CUdevice);
  auto* uuid = ask<GetUuid>(place_get_uuid_v2, "cuDeviceGetUuid_v2");
  if (uuid == nullptr) uuid = ask<GetUuid>(place_get_uuid, "cuDeviceGetUuid");
  if (uuid != nullptr && uuid(id.uuid, ordinal) == kSuccess) id.flags |= wire::kDeviceUuid;
  auto* const pci = ask<CUresult(char*, int, CUdevice)>(place_get_pci, "cuDeviceGetPCIBusId");
  if (pci != nullptr && pci(id.pci, sizeof id.pci, ordinal) == kSuccess) {
    id.flags |= wire::kDevicePci;
  }
  return id;
}

wire::DeviceId device_id(State& state, CUdevice ordinal) {
  if (ordinal < 0 || ordinal >= static_cast<CUdevice>(wire::kMaxDevices)) {
    wire::DeviceId id = {};
    id.ordinal = ordinal < 0 ? -1 : ordinal;
    return id;
  }
  Device& device = state.devices[ordinal];
  if (__atomic_load_n(&device.phase, __ATOMIC_ACQUIRE) == kDeviceKnown) return device.id;
  const wire::DeviceId id = ask_device(ordinal);
  int expected = kDeviceUnknown;
  if (id.flags != 0 && __atomic_compare_exchange_n(&device.phase, &expected, kDeviceWriting, false,
                                                   __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    device.id = id;
    __atomic_store_n(&device.phase, kDeviceKnown, __ATOMIC_RELEASE);
  }
  return id;
}

Device* known_device(State& state, CUdevice ordinal) {
  return ordinal >= 0 && ordinal < static_cast<CUdevice>(wire::kMaxDevices)
             ? &state.devices[ordinal]
             : nullptr;
}

// False when the limit is reached; the loss is counted.
bool within(State& state, uint32_t& counter, uint32_t limit) {
  if (__atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED) < limit) return true;
  __atomic_store_n(&counter, limit, __ATOMIC_RELAXED);
  count_loss(state, wire::kLossLimit);
  return false;
}

Variable visible_variable(char* buffer) {
  return {.name = "CUDA_VISIBLE_DEVICES",
          .value = buffer,
          .capacity = kVisibleBytes,
          .bytes = 0,
          .set = false,
          .cut = false};
}

// Adds CUDA_VISIBLE_DEVICES when it is not what it was when the driver read it.
void add_changed_variable(State& state, EventRecord& event) {
  if (__atomic_load_n(&state.init_phase, __ATOMIC_ACQUIRE) != kInitDone) return;
  const uint64_t mark = environment_mark();
  if (__atomic_load_n(&state.environment, __ATOMIC_RELAXED) == mark) return;
  char buffer[kVisibleBytes];
  Variable now = visible_variable(buffer);
  read_variables(&now, 1);
  if (now.set == (state.visible_set != 0) && now.bytes == state.visible_bytes &&
      memcmp(buffer, state.visible, now.bytes) == 0) {
    __atomic_store_n(&state.environment, mark, __ATOMIC_RELAXED);
  } else {
    event.variable(now);
  }
}

void write_context(State& state, wire::Kind kind, const char* function, wire::DeviceId device,
                   uint64_t context, CUresult result, uint32_t flags) {
  EventRecord event(state, kind);
  if (!event) return;
  event.builder().payload(
      wire::ContextPayload{.device = device, .context = context, .result = result, .flags = flags});
  event.text(wire::kFunction, function);
  event.thread_name();
  if (kind == wire::kContextMade) {
    add_changed_variable(state, event);
    event.stack();
  }
  event.write();
}

// In the tables of contexts and allocations one number holds a device and something else.
constexpr unsigned kDeviceBits = 8;
constexpr uint64_t kDeviceMask = (1U << kDeviceBits) - 1;  // all ones: unknown device

uint64_t with_device(uint64_t value, CUdevice device) {
  const uint64_t low = device < 0 || device >= static_cast<CUdevice>(wire::kMaxDevices)
                           ? kDeviceMask
                           : static_cast<uint64_t>(device);
  return value << kDeviceBits | low;
}

CUdevice device_in(uint64_t value) {
  const uint64_t low = value & kDeviceMask;
  return low == kDeviceMask ? kUnknownDevice : static_cast<CUdevice>(low);
}

}  // namespace

bool begin_init() {
  const KeepErrno keep;
  State* const state = ready_state();
  if (state == nullptr) return false;
  int expected = kNoInit;
  if (!__atomic_compare_exchange_n(&state->init_phase, &expected, kInInit, false, __ATOMIC_ACQ_REL,
                                   __ATOMIC_ACQUIRE)) {
    return false;
  }
  Variable now = visible_variable(state->visible);
  read_variables(&now, 1);
  state->visible_set = now.set;
  state->visible_bytes = static_cast<uint32_t>(now.bytes);
  return true;
}

namespace {

void write_init(State& state, CUresult result) {
  EventRecord event(state, wire::kInit);
  if (!event) return;
  event.builder().payload(wire::InitPayload{.result = result, .flags = 0});
  Variable visible = visible_variable(state.visible);
  visible.set = state.visible_set != 0;
  visible.bytes = state.visible_bytes;
  visible.cut = visible.bytes == kVisibleBytes;
  event.variable(visible);
  // These are not the driver's to change, so that reading them now is as good as before.
  constexpr size_t kCount = 6;
  const char* const names[kCount] = {
      "CUDA_DEVICE_ORDER",          "LOCAL_RANK",     "RANK", "SLURM_LOCALID",
      "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"};
  char values[kCount][kVariableBytes];
  Variable variables[kCount];
  for (size_t i = 0; i < kCount; ++i) {
    variables[i] = {.name = names[i],
                    .value = values[i],
                    .capacity = sizeof values[i],
                    .bytes = 0,
                    .set = false,
                    .cut = false};
  }
  read_variables(variables, kCount);
  for (const Variable& variable : variables) event.variable(variable);
  event.thread_name();
  event.stack();
  event.write();
}

}  // namespace

void end_init(CUresult result) {
  const KeepErrno keep;
  State* const state = ready_state();
  if (state == nullptr) return;
  if (result == kSuccess || within(*state, state->init_failures, kMaxInitFailures)) {
    write_init(*state, result);
  }
  // After a failure the next attempt reads the variables again, and so do we.
  __atomic_store_n(&state->init_phase, result == kSuccess ? kInitDone : kNoInit, __ATOMIC_RELEASE);
}

void context_made(const char* function, CUdevice device, const void* context, CUresult result,
                  uint32_t flags) {
  const KeepErrno keep;
  State* const state = ready_state();
  if (state == nullptr) return;
  if (result != kSuccess) {
    if (!within(*state, state->context_failures, kMaxContextFailures)) return;
    context = nullptr;
  }
  const auto number = reinterpret_cast<uint64_t>(context);
  if (number != 0 && !(flags & wire::kContextPrimary)) {
    state->contexts.insert(number, with_device(flags, device));
  }
  write_context(*state, wire::kContextMade, function, device_id(*state, device), number, result,
                flags);
}

EndingContext begin_ending(const void* context) {
  const KeepErrno keep;
  EndingContext ending = {
      .context = reinterpret_cast<uint64_t>(context), .known = 0, .found = false};
  State* const state = ready_state();
  if (state == nullptr || context == nullptr) return ending;
  ending.found = state->contexts.take(ending.context, ending.known);
  return ending;
}

void end_ending(const char* function, const EndingContext& ending, CUresult result) {
  const KeepErrno keep;
  State* const state = ready_state();
  if (state == nullptr) return;
  if (result != kSuccess) {
    if (ending.found) state->contexts.insert(ending.context, ending.known);
    return;
  }
  const CUdevice device = ending.found ? device_in(ending.known) : kUnknownDevice;
  write_context(*state, wire::kContextEnded, function, device_id(*state, device), ending.context,
                result, static_cast<uint32_t>(ending.known >> kDeviceBits));
}

namespace {

bool primary_is_active(CUdevice device, bool otherwise) {
  auto* const get_state =
      ask<CUresult(CUdevice, unsigned*, int*)>(place_get_state, "cuDevicePrimaryCtxGetState");
  unsigned flags = 0;
  int active = 0;
  if (get_state == nullptr || get_state(device, &flags, &active) != kSuccess) return otherwise;
  return active != 0;
}

}  // namespace

Retain begin_retain(CUdevice device) {
  Retain retain = {.recorded = false, .active = false};
  State* const state = ready_state();
  if (state == nullptr) return {.recorded = true, .active = false};
  const Device* const known = known_device(*state, device);
  if (known != nullptr && __atomic_load_n(&known->primary, __ATOMIC_ACQUIRE)) {
    retain.recorded = true;
    return retain;
  }
  const KeepErrno keep;
  // Before the driver is initialised it answers with an error, and the retain will too.
  retain.active = primary_is_active(device, false);
  return retain;
}

void end_retain(const char* function, CUdevice device, const Retain& retain, const void* context,
                CUresult result) {
  if (retain.recorded) return;
  const KeepErrno keep;
  State* const state = ready_state();
  if (state == nullptr) return;
  uint32_t flags = wire::kContextPrimary;
  if (result == kSuccess) {
    Device* const known = known_device(*state, device);
    // Of threads that retain at once, one tells.
    uint64_t none = 0;
    if (known != nullptr &&
        !__atomic_compare_exchange_n(&known->primary, &none, reinterpret_cast<uint64_t>(context),
                                     false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
      return;
    }
    if (retain.active) flags |= wire::kContextFound;
  }
  context_made(function, device, context, result, flags);
}

void primary_released(const char* function, CUdevice device) {
  const KeepErrno keep;
  State* const state = ready_state();
  if (state == nullptr) return;
  Device* const known = known_device(*state, device);
  if (known == nullptr || !__atomic_load_n(&known->primary, __ATOMIC_ACQUIRE)) return;
  if (primary_is_active(device, true)) return;
  const uint64_t context = __atomic_exchange_n(&known->primary, uint64_t{0}, __ATOMIC_ACQ_REL);
  if (context == 0) return;
  write_context(*state, wire::kContextEnded, function, device_id(*state, device), context, kSuccess,
                wire::kContextPrimary);
}

CUdevice device_of_context(const void* context) {
  const KeepErrno keep;
  State* const state = ready_state();
  uint64_t value = 0;
  if (state == nullptr || !state->contexts.find(reinterpret_cast<uint64_t>(context), value)) {
    return kUnknownDevice;
  }
  return device_in(value);
}

CUdevice current_device() {
  auto* const get_device = ask<CUresult(CUdevice*)>(place_get_device, "cuCtxGetDevice");
  CUdevice device = kUnknownDevice;
  if (get_device == nullptr || get_device(&device) != kSuccess) return kUnknownDevice;
  return device;
}

namespace {

void add(uint64_t& counter, uint64_t value) {
  __atomic_fetch_add(&counter, value, __ATOMIC_RELAXED);
}

void raise_peak(wire::DeviceCounters& counters, uint64_t now) {
  uint64_t peak = __atomic_load_n(&counters.bytes_peak, __ATOMIC_RELAXED);
  while (now > peak && !__atomic_compare_exchange_n(&counters.bytes_peak, &peak, now, true,
                                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

bool track(State& state, MemoryKind kind, uint64_t key, uint64_t value) {
  return kind == MemoryKind::address ? state.addresses.insert(key, value)
                                     : state.handles.insert(key, value);
}

__attribute__((noinline)) void allocation_event(State& state, const char* function, CUdevice device,
                                                uint64_t bytes, bool first) {
  const KeepErrno keep;
  const wire::DeviceId id = device_id(state, device);
  if (first) {
    wire::DeviceId& slot = state.counters->devices[device].device;
    slot.ordinal = id.ordinal;
    memcpy(slot.uuid, id.uuid, sizeof slot.uuid);
    memcpy(slot.pci, id.pci, sizeof slot.pci);
    __atomic_store_n(&slot.flags, id.flags | wire::kDeviceInUse, __ATOMIC_RELEASE);
  } else if (!within(state, state.allocation_events, kMaxAllocationEvents)) {
    return;
  }
  EventRecord event(state, wire::kAllocation);
  if (!event) return;
  const bool large = bytes >= wire::kLargeAllocationBytes;
  event.builder().payload(wire::AllocationPayload{
      .device = id,
      .bytes = bytes,
      .result = kSuccess,
      .flags = (first ? wire::kAllocationFirst : 0) | (large ? wire::kAllocationLarge : 0)});
  event.text(wire::kFunction, function);
  event.thread_name();
  event.stack();
  event.write();
}

}  // namespace

void allocated(const char* function, MemoryKind kind, uint64_t key, uint64_t bytes,
               CUdevice device) {
  State* const state = ready_state();
  if (state == nullptr) return;
  Device* const known = known_device(*state, device);
  if (known == nullptr) {
    add(state->counters->unknown_device, 1);
    return;
  }
  wire::DeviceCounters& counters = state->counters->devices[device];
  add(counters.allocations, 1);
  if (track(*state, kind, key, with_device(bytes, device))) {
    raise_peak(counters, __atomic_add_fetch(&counters.bytes_now, bytes, __ATOMIC_RELAXED));
  } else {
    add(counters.untracked, 1);
  }
  const bool first = __builtin_expect(!__atomic_load_n(&known->first_seen, __ATOMIC_RELAXED), 0) &&
                     !__atomic_exchange_n(&known->first_seen, 1, __ATOMIC_ACQ_REL);
  if (first || __builtin_expect(bytes >= wire::kLargeAllocationBytes, 0)) {
    allocation_event(*state, function, device, bytes, first);
  }
}

Freeing begin_free(MemoryKind kind, uint64_t key) {
  Freeing freeing = {.kind = kind, .key = key, .value = 0, .found = false};
  State* const state = ready_state();
  if (state == nullptr || key == 0) return freeing;
  freeing.found = kind == MemoryKind::address ? state->addresses.take(key, freeing.value)
                                              : state->handles.take(key, freeing.value);
  return freeing;
}

void end_free(const Freeing& freeing, CUresult result) {
  State* const state = ready_state();
  if (state == nullptr) return;
  if (!freeing.found) {
    if (result == kSuccess && freeing.key != 0) add(state->counters->foreign_frees, 1);
    return;
  }
  if (result != kSuccess) {
    track(*state, freeing.kind, freeing.key, freeing.value);
    return;
  }
  wire::DeviceCounters& counters = state->counters->devices[device_in(freeing.value)];
  add(counters.frees, 1);
  add(counters.bytes_now, -(freeing.value >> kDeviceBits));
}

}  // namespace corral::shim

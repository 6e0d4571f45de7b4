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

#include "shim/device.h"
#include "shim/environment.h"
#include "shim/event_record.h"
#include "shim/state.h"

namespace corral::shim {
namespace {

constexpr uint32_t kMaxInitFailures = 16;
constexpr uint32_t kMaxContextFailures = 64;
constexpr size_t kVariableBytes = 128;  // of the rank variables

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

}  // namespace corral::shim

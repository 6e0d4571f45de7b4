// SPDX-License-Identifier: Apache-2.0
// The shim runs inside other people's training jobs. The rules for everything in this folder:
//
//  * It includes trace/wire.h, trace/writer.h, trace/own_code.h and libc, and nothing else of ours.
//  * The driver is called first, and its result is returned untouched. errno is kept. The one
//    exception is what `corral trace --deny` wants refused (shim/refusal).
//  * It never calls cuInit: that would fix the meaning of CUDA_VISIBLE_DEVICES before the program
//    has set it. It asks the driver questions only (device, UUID, state), after the driver worked.
//  * It prints nothing, ever, but the line of such a refusal. What cannot be recorded is counted;
//    what cannot be counted is dropped.
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
#include "shim/event_record.h"
#include "shim/kept_variables.h"
#include "shim/stack_native.h"
#include "shim/state.h"

namespace corral::shim {
namespace {

constexpr uint32_t kMaxInitFailures = 16;
constexpr uint32_t kMaxContextFailures = 64;

void write_context(State& state, wire::Kind kind, const char* function, wire::DeviceId device,
                   uint64_t context, CUresult result, uint32_t flags) {
  EventRecord event(state, kind);
  if (!event) return;
  event.builder().payload(
      wire::ContextPayload{.device = device, .context = context, .result = result, .flags = flags});
  event.text(wire::kFunction, function);
  event.thread_name();
  if (kind == wire::kContextMade) {
    add_what_changed(state, event);
    event.stack();
    event.main_thread_stack();
  }
  event.write();
}

// In place of the handle of a primary context that was found by asking.
constexpr uint64_t kUnseenContext = 1;

void begin_making(State& state) { __atomic_fetch_add(&state.making, 1, __ATOMIC_SEQ_CST); }

void end_making(State& state) {
  uint32_t making = __atomic_load_n(&state.making, __ATOMIC_SEQ_CST);
  // 0: we are in a child of fork, which began with an empty state in the middle of a call.
  while (making != 0 && !__atomic_compare_exchange_n(&state.making, &making, making - 1, false,
                                                     __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
}

}  // namespace

MakingContext::MakingContext() : state_(nullptr) {
  const KeepErrno keep;
  state_ = ready_state();
  if (state_ != nullptr) begin_making(*state_);
}

MakingContext::~MakingContext() {
  const KeepErrno keep;
  if (state_ != nullptr) end_making(*state_);
}

bool begin_init() {
  const KeepErrno keep;
  State* const state = ready_state();
  if (state == nullptr) return false;
  int expected = kNoInit;
  if (!__atomic_compare_exchange_n(&state->init_phase, &expected, kInInit, false, __ATOMIC_ACQ_REL,
                                   __ATOMIC_ACQUIRE)) {
    return false;
  }
  keep_variables(*state);
  return true;
}

namespace {

void write_init(State& state, CUresult result) {
  EventRecord event(state, wire::kInit);
  if (!event) return;
  event.builder().payload(wire::InitPayload{.result = result, .flags = 0});
  add_kept_variables(state, event);
  event.thread_name();
  event.stack();
  event.main_thread_stack();
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
  look_for_unseen_contexts();
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
  begin_making(*state);
  __atomic_fetch_add(&state->retains_begun, 1, __ATOMIC_SEQ_CST);
  // Before the driver is initialised it answers with an error, and the retain will too.
  retain.active = primary_is_active(device, false);
  return retain;
}

void end_retain(const char* function, CUdevice device, const Retain& retain, const void* context,
                CUresult result) {
  State* const state = ready_state();
  if (state == nullptr) return;
  Device* const known = known_device(*state, device);
  // Known to be active when the call began; unless another thread has ended it since, this one has
  // only counted it.
  if (retain.recorded && (result != kSuccess || known == nullptr ||
                          __atomic_load_n(&known->primary, __ATOMIC_SEQ_CST) != 0)) {
    return;
  }
  const KeepErrno keep;
  uint32_t flags = wire::kContextPrimary;
  bool told = false;
  if (result == kSuccess) {
    // Of threads that retain at once, one tells.
    uint64_t none = 0;
    told = known != nullptr &&
           !__atomic_compare_exchange_n(&known->primary, &none, reinterpret_cast<uint64_t>(context),
                                        false, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE);
    if (retain.active) flags |= wire::kContextFound;
  }
  if (!retain.recorded) end_making(*state);
  if (told) return;
  context_made(function, device, context, result, flags);
}

void primary_released(const char* function, CUdevice device) {
  const KeepErrno keep;
  State* const state = ready_state();
  if (state == nullptr) return;
  Device* const known = known_device(*state, device);
  if (known == nullptr || !__atomic_load_n(&known->primary, __ATOMIC_ACQUIRE)) return;
  if (primary_is_active(device, true)) return;
  const uint64_t context = __atomic_exchange_n(&known->primary, uint64_t{0}, __ATOMIC_SEQ_CST);
  if (context == 0) return;
  // Made again by another thread, which took it for the one that was known: as if it had not ended.
  uint64_t none = 0;
  if (primary_is_active(device, false) &&
      __atomic_compare_exchange_n(&known->primary, &none, context, false, __ATOMIC_SEQ_CST,
                                  __ATOMIC_SEQ_CST)) {
    return;
  }
  write_context(*state, wire::kContextEnded, function, device_id(*state, device),
                context == kUnseenContext ? 0 : context, kSuccess, wire::kContextPrimary);
}

void look_for_unseen_contexts() {
  const KeepErrno keep;
  State* const state = ready_state();
  if (state == nullptr || __atomic_load_n(&state->init_phase, __ATOMIC_ACQUIRE) != kInitDone)
    return;
  // Whoever activates one through a hook meanwhile is seen here, before or after the driver's word.
  const uint32_t begun = __atomic_load_n(&state->retains_begun, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&state->making, __ATOMIC_SEQ_CST) != 0) return;
  const CUdevice count = device_count(*state);
  for (CUdevice device = 0; device < count; ++device) {
    uint64_t& primary = state->devices[device].primary;
    if (__atomic_load_n(&primary, __ATOMIC_SEQ_CST) != 0) continue;
    if (!primary_is_active(device, false)) continue;
    if (__atomic_load_n(&state->retains_begun, __ATOMIC_SEQ_CST) != begun) return;
    uint64_t none = 0;
    if (!__atomic_compare_exchange_n(&primary, &none, kUnseenContext, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST)) {
      continue;
    }
    write_context(*state, wire::kContextMade, "cuDevicePrimaryCtxGetState",
                  device_id(*state, device), 0, kSuccess,
                  wire::kContextPrimary | wire::kContextFound);
  }
}

namespace {

uintptr_t base_of(const void* function) {
  LoadedModule module;
  return module_of(reinterpret_cast<uintptr_t>(function), module) ? module.load_base : 0;
}

// Whether a call of the driver stands on this stack, as when a signal handler that interrupted it
// has called exit(): its locks will not be given back. Also true where that cannot be told.
bool may_be_inside_the_driver() {
  void* const of_driver = driver_function("cuDriverGetVersion");
  uintptr_t addresses[64];
  const size_t count = capture_native(addresses, sizeof addresses / sizeof *addresses);
  if (of_driver == nullptr || count == 0) return true;
  const uintptr_t driver = base_of(of_driver);
  const uintptr_t own = base_of(reinterpret_cast<void*>(&look_for_unseen_contexts));
  for (size_t i = 0; i < count; ++i) {
    const uintptr_t base = base_of(reinterpret_cast<void*>(addresses[i]));
    if (base != 0 && (base == driver || base == own)) return true;
  }
  return false;
}

}  // namespace

void look_for_unseen_contexts_at_exit() {
  if (!may_be_inside_the_driver()) look_for_unseen_contexts();
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

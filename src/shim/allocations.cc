// SPDX-License-Identifier: Apache-2.0
// Counts memory by device, and tells of the first and the large allocations and of refused ones.
#include "shim/core.h"
#include "shim/device.h"
#include "shim/event_record.h"
#include "shim/state.h"

namespace corral::shim {
namespace {

constexpr uint32_t kMaxAllocationEvents = 4096;
constexpr uint32_t kMaxShortageEvents = 128;  // beyond that they are only counted

// An allocator that gives back what it caches asks again at once: of another thread's want nothing
// is said after that many other allocations.
constexpr int kShortagePatience = 64;

// In the tables, beside the device: managed memory is counted apart.
constexpr uint64_t kManaged = 0x40;
static_assert(wire::kMaxDevices <= kManaged && kManaged < kDeviceMask);

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

// Whoever makes it true for the first time is told so.
bool first_time(int& seen) {
  return !__atomic_load_n(&seen, __ATOMIC_RELAXED) &&
         !__atomic_exchange_n(&seen, 1, __ATOMIC_ACQ_REL);
}

void use_slot(State& state, const wire::DeviceId& id) {
  wire::DeviceId& slot = state.counters->devices[id.ordinal].device;
  if (__atomic_load_n(&slot.flags, __ATOMIC_ACQUIRE) & wire::kDeviceInUse) return;
  slot.ordinal = id.ordinal;
  memcpy(slot.uuid, id.uuid, sizeof slot.uuid);
  memcpy(slot.pci, id.pci, sizeof slot.pci);
  __atomic_store_n(&slot.flags, id.flags | wire::kDeviceInUse, __ATOMIC_RELEASE);
}

// `flags` tells the kind, and whether it is the first of it on that device.
void allocation_event(State& state, const char* function, CUdevice device, uint64_t bytes,
                      uint32_t flags) {
  const KeepErrno keep;
  const bool first = flags & wire::kAllocationFirst;
  const wire::DeviceId id = device_id(state, device);
  if (known_device(state, device) != nullptr) use_slot(state, id);
  if (bytes >= wire::kLargeAllocationBytes) flags |= wire::kAllocationLarge;
  if (!first && !within(state, state.allocation_events, kMaxAllocationEvents)) return;
  {
    EventRecord event(state, wire::kAllocation);
    if (!event) return;
    event.builder().payload(
        wire::AllocationPayload{.device = id, .bytes = bytes, .result = kSuccess, .flags = flags});
    event.text(wire::kFunction, function);
    event.thread_name();
    event.stack();
    event.write();
  }
  look_for_unseen_contexts();
}

// One allocation in thousands comes here.
__attribute__((noinline)) void seldom(State& state, const char* function, CUdevice device,
                                      uint64_t bytes, bool first) {
  if (first || bytes >= wire::kLargeAllocationBytes) {
    allocation_event(state, function, device, bytes, first ? wire::kAllocationFirst : 0);
  } else {
    look_for_unseen_contexts();
  }
}

void shortage_event(State& state, const char* function, CUdevice device,
                    wire::ShortagePayload payload) {
  const uint32_t number = __atomic_fetch_add(&state.shortage_events, 1, __ATOMIC_RELAXED);
  if (number >= kMaxShortageEvents) return;
  payload.device = device_id(state, device);
  EventRecord event(state, wire::kShortage);
  if (!event) return;
  event.builder().payload(payload);
  event.text(wire::kFunction, function);
  event.thread_name();
  event.stack();
  event.write();
}

bool take_shortage(Shortage& shortage, int& owner) {
  return __atomic_compare_exchange_n(&shortage.owner, &owner, kShortageTaken, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

// The first allocation that succeeds after one that did not: the same once more, or something else.
__attribute__((noinline)) void after_shortage(State& state, const char* function, CUdevice device,
                                              uint64_t bytes) {
  const KeepErrno keep;
  Shortage& shortage = state.devices[device].shortage;
  int owner = static_cast<int>(own_tid());
  if (!take_shortage(shortage, owner)) {
    if (owner > 0 && __atomic_sub_fetch(&shortage.patience, 1, __ATOMIC_RELAXED) <= 0)
      __atomic_compare_exchange_n(&shortage.owner, &owner, 0, false, __ATOMIC_RELEASE,
                                  __ATOMIC_RELAXED);
    return;
  }
  const uint64_t wanted = shortage.bytes;
  const uint64_t held_then = shortage.held;
  const uint32_t failures = shortage.failures;
  __atomic_store_n(&shortage.owner, 0, __ATOMIC_RELEASE);
  if (wanted != bytes) return;
  wire::DeviceCounters& counters = state.counters->devices[device];
  const uint64_t held = __atomic_load_n(&counters.bytes_now, __ATOMIC_RELAXED);
  add(counters.shortages_over, 1);
  shortage_event(state, function, device,
                 {.device = {},
                  .bytes = bytes,
                  .held = held_then,
                  .given_back = held < held_then ? held_then - held : 0,
                  .result = kSuccess,
                  .flags = wire::kShortageOver,
                  .failures = failures,
                  .reserved = 0});
}

// Known when it is freed, and in no device's numbers.
__attribute__((noinline)) void remember_only(State& state, MemoryKind kind, uint64_t key,
                                             CUdevice device) {
  if (device != kNoDevice) add(state.counters->unknown_device, 1);
  track(state, kind, key, kDeviceMask);
}

}  // namespace

void allocated(const char* function, MemoryKind kind, uint64_t key, uint64_t bytes,
               CUdevice device) {
  State* const state = ready_state();
  if (state == nullptr) return;
  Device* const known = known_device(*state, device);
  if (__builtin_expect(known == nullptr, 0)) {
    remember_only(*state, kind, key, device);
    return;
  }
  if (__builtin_expect(__atomic_load_n(&known->shortage.owner, __ATOMIC_RELAXED) != 0, 0)) {
    after_shortage(*state, function, device, bytes);
  }
  wire::DeviceCounters& counters = state->counters->devices[device];
  const uint64_t number = __atomic_add_fetch(&counters.allocations, 1, __ATOMIC_RELAXED);
  if (track(*state, kind, key, with_device(bytes, device))) {
    raise_peak(counters, __atomic_add_fetch(&counters.bytes_now, bytes, __ATOMIC_RELAXED));
  } else {
    add(counters.untracked, 1);
  }
  if (__builtin_expect(
          number == 1 || number % kLookInterval == 0 || bytes >= wire::kLargeAllocationBytes, 0)) {
    seldom(*state, function, device, bytes, number == 1);
  }
}

void allocated_of_unknown_size(const char* function, MemoryKind kind, uint64_t key,
                               CUdevice device) {
  allocated(function, kind, key, 0, device);
  State* const state = ready_state();
  if (state == nullptr || known_device(*state, device) == nullptr) return;
  add(state->counters->devices[device].untracked, 1);
}

void allocation_refused(const char* function, uint64_t bytes, CUdevice device) {
  const KeepErrno keep;
  State* const state = ready_state();
  if (state == nullptr) return;
  Device* const known = known_device(*state, device);
  if (known == nullptr) return;
  use_slot(*state, device_id(*state, device));
  wire::DeviceCounters& counters = state->counters->devices[device];
  add(counters.out_of_memory, 1);
  uint64_t held = __atomic_load_n(&counters.bytes_now, __ATOMIC_RELAXED);
  uint32_t failures = 1;
  Shortage& shortage = known->shortage;
  const int tid = static_cast<int>(own_tid());
  int owner = tid;
  const bool mine = take_shortage(shortage, owner);
  if (mine && shortage.bytes == bytes) {
    failures = shortage.failures + 1;
    held = shortage.held;
  }
  if (mine || (owner == 0 && take_shortage(shortage, owner))) {
    shortage.failures = failures;
    shortage.bytes = bytes;
    shortage.held = held;
    __atomic_store_n(&shortage.patience, kShortagePatience, __ATOMIC_RELAXED);
    __atomic_store_n(&shortage.owner, tid, __ATOMIC_RELEASE);
  }
  shortage_event(*state, function, device,
                 {.device = {},
                  .bytes = bytes,
                  .held = held,
                  .given_back = 0,
                  .result = kOutOfMemory,
                  .flags = 0,
                  .failures = failures,
                  .reserved = 0});
}

void allocated_managed(const char* function, CUdeviceptr address, uint64_t bytes, CUdevice device) {
  State* const state = ready_state();
  if (state == nullptr) return;
  Device* const known = known_device(*state, device);
  if (known == nullptr) {
    remember_only(*state, MemoryKind::address, address, device);
    return;
  }
  if (track(*state, MemoryKind::address, address, with_device(bytes, device) | kManaged)) {
    add(state->counters->devices[device].managed_now, bytes);
  }
  const bool first = first_time(known->managed_seen);
  if (!first && bytes < wire::kLargeAllocationBytes) return;
  allocation_event(*state, function, device, bytes,
                   wire::kAllocationManaged | (first ? wire::kAllocationFirst : 0));
}

void opened_shared(const char* function, uint64_t bytes, CUdevice device) {
  State* const state = ready_state();
  if (state == nullptr) return;
  Device* const known = known_device(*state, device);
  if (known != nullptr) add(state->counters->devices[device].shared, 1);
  if (!first_time(known != nullptr ? known->shared_seen : state->unknown_shared_seen)) return;
  allocation_event(*state, function, device, bytes,
                   wire::kAllocationShared | wire::kAllocationFirst);
}

void graph_node_added(const char* function, uint64_t bytes, CUdevice device) {
  State* const state = ready_state();
  if (state == nullptr) return;
  Device* const known = known_device(*state, device);
  if (known == nullptr) return;
  add(state->counters->devices[device].graph_nodes, 1);
  const bool first = first_time(known->graph_seen);
  if (!first && bytes < wire::kLargeAllocationBytes) return;
  allocation_event(*state, function, device, bytes,
                   wire::kAllocationGraph | (first ? wire::kAllocationFirst : 0));
}

Freeing begin_free(MemoryKind kind, uint64_t key) {
  Freeing freeing = {.kind = kind, .key = key, .value = 0, .found = false};
  State* const state = ready_state();
  if (state == nullptr || key == 0) return freeing;
  freeing.found = kind == MemoryKind::address ? state->addresses.take(key, freeing.value)
                                              : state->handles.take(key, freeing.value);
  return freeing;
}

namespace {

__attribute__((noinline)) void end_uncounted(State& state, uint64_t value) {
  if ((value & kDeviceMask) == kDeviceMask) return;
  add(state.counters->devices[(value & kDeviceMask) - kManaged].managed_now,
      -(value >> kDeviceBits));
}

}  // namespace

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
  const uint64_t device = freeing.value & kDeviceMask;
  if (__builtin_expect(device >= wire::kMaxDevices, 0)) {
    end_uncounted(*state, freeing.value);
    return;
  }
  wire::DeviceCounters& counters = state->counters->devices[device];
  add(counters.frees, 1);
  add(counters.bytes_now, -(freeing.value >> kDeviceBits));
}

}  // namespace corral::shim

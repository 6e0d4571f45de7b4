// SPDX-License-Identifier: Apache-2.0
// Counts memory by device, and tells of the first and the large allocations.
#include "shim/core.h"
#include "shim/device.h"
#include "shim/event_record.h"
#include "shim/state.h"

namespace corral::shim {
namespace {

constexpr uint32_t kMaxAllocationEvents = 4096;

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

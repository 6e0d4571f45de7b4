// SPDX-License-Identifier: Apache-2.0
// What the driver says of a device, and on which device a thing of the driver's lies. The driver is
// only asked here, through functions that change nothing.
#pragma once

#include "shim/core.h"
#include "shim/hook.h"
#include "shim/state.h"

namespace corral::shim {

// A driver's function that is asked, not hooked; looked up once. Null when this driver has none.
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

// The state's entry of a device; null when there is none for that ordinal.
inline Device* known_device(State& state, CUdevice ordinal) {
  return ordinal >= 0 && ordinal < static_cast<CUdevice>(wire::kMaxDevices)
             ? &state.devices[ordinal]
             : nullptr;
}

// Kept from the first time that the driver tells it.
wire::DeviceId device_id(State& state, CUdevice ordinal);

// How many there are, at most wire::kMaxDevices; 0 before cuInit.
CUdevice device_count(State& state);

// Whether the device's primary context is active; `otherwise` when the driver does not tell.
bool primary_is_active(CUdevice device, bool otherwise);

// In the tables of contexts and allocations one number holds a device and something else.
constexpr unsigned kDeviceBits = 8;
constexpr uint64_t kDeviceMask = (1U << kDeviceBits) - 1;  // all ones: unknown, or no device

inline uint64_t with_device(uint64_t value, CUdevice device) {
  const uint64_t low = device < 0 || device >= static_cast<CUdevice>(wire::kMaxDevices)
                           ? kDeviceMask
                           : static_cast<uint64_t>(device);
  return value << kDeviceBits | low;
}

inline CUdevice device_in(uint64_t value) {
  const uint64_t low = value & kDeviceMask;
  return low == kDeviceMask ? kUnknownDevice : static_cast<CUdevice>(low);
}

}  // namespace corral::shim

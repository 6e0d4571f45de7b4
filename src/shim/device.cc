// SPDX-License-Identifier: Apache-2.0
#include "shim/device.h"

namespace corral::shim {
namespace {

void* place_get_device;
void* place_get_uuid_v2;
void* place_get_uuid;
void* place_get_pci;
void* place_get_state;
void* place_get_count;
void* place_stream_device;
void* place_pointer_attribute;
void* place_handle_properties;

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

}  // namespace

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

CUdevice device_count(State& state) {
  const int known = __atomic_load_n(&state.device_count, __ATOMIC_RELAXED);
  if (known > 0) return known;
  auto* const get_count = ask<CUresult(int*)>(place_get_count, "cuDeviceGetCount");
  int count = 0;
  if (get_count == nullptr || get_count(&count) != kSuccess) return 0;
  if (count > static_cast<int>(wire::kMaxDevices)) count = static_cast<int>(wire::kMaxDevices);
  __atomic_store_n(&state.device_count, count, __ATOMIC_RELAXED);
  return count;
}

bool primary_is_active(CUdevice device, bool otherwise) {
  auto* const get_state =
      ask<CUresult(CUdevice, unsigned*, int*)>(place_get_state, "cuDevicePrimaryCtxGetState");
  unsigned flags = 0;
  int active = 0;
  if (get_state == nullptr || get_state(device, &flags, &active) != kSuccess) return otherwise;
  return active != 0;
}

CUdevice current_device() {
  auto* const get_device = ask<CUresult(CUdevice*)>(place_get_device, "cuCtxGetDevice");
  CUdevice device = kUnknownDevice;
  if (get_device == nullptr || get_device(&device) != kSuccess) return kUnknownDevice;
  return device;
}

CUdevice device_of_stream(CUstream stream) {
  if (reinterpret_cast<uintptr_t>(stream) <= kLastNamedStream) return current_device();
  auto* const get_device =
      ask<CUresult(CUstream, CUdevice*)>(place_stream_device, "cuStreamGetDevice");
  // Before CUDA 12.8 only the stream's context is told, and of that nothing without changing the
  // current one.
  if (get_device == nullptr) return current_device();
  CUdevice device = kUnknownDevice;
  return get_device(stream, &device) == kSuccess ? device : kUnknownDevice;
}

CUdevice device_of_address(CUdeviceptr address) {
  auto* const get_attribute =
      ask<CUresult(void*, int, CUdeviceptr)>(place_pointer_attribute, "cuPointerGetAttribute");
  CUdevice device = kUnknownDevice;
  if (get_attribute == nullptr || get_attribute(&device, kPointerDevice, address) != kSuccess) {
    return kUnknownDevice;
  }
  return device < 0 ? kNoDevice : device;
}

CUdevice device_of_handle(CUmemGenericAllocationHandle handle) {
  auto* const get_properties = ask<CUresult(CUmemAllocationProp*, CUmemGenericAllocationHandle)>(
      place_handle_properties, "cuMemGetAllocationPropertiesFromHandle");
  // The driver writes more than the beginning that we know.
  union {
    CUmemAllocationProp known;
    unsigned char whole[256];
  } properties = {};
  if (get_properties == nullptr || get_properties(&properties.known, handle) != kSuccess) {
    return kUnknownDevice;
  }
  const CUmemLocation location = properties.known.location;
  return location.type == kLocationDevice ? location.id : kNoDevice;
}

void pool_made(CUmemoryPool pool, CUdevice device) {
  const KeepErrno keep;
  if (State* const state = ready_state()) {
    state->pools.insert(reinterpret_cast<uint64_t>(pool), with_device(1, device));
  }
}

void pool_ended(CUmemoryPool pool) {
  const KeepErrno keep;
  uint64_t value;
  if (State* const state = ready_state())
    state->pools.take(reinterpret_cast<uint64_t>(pool), value);
}

bool device_of_pool(CUmemoryPool pool, CUdevice& device) {
  State* const state = ready_state();
  uint64_t value = 0;
  if (state == nullptr || !state->pools.find(reinterpret_cast<uint64_t>(pool), value)) return false;
  device = device_in(value);
  if (device == kUnknownDevice) device = kNoDevice;
  return true;
}

}  // namespace corral::shim

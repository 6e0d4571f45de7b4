// SPDX-License-Identifier: Apache-2.0
#include "shim/device.h"

namespace corral::shim {
namespace {

void* place_get_device;
void* place_get_uuid_v2;
void* place_get_uuid;
void* place_get_pci;
void* place_get_state;

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

}  // namespace corral::shim

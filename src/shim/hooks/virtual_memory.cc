// SPDX-License-Identifier: Apache-2.0
// Physical memory of the virtual memory functions (PyTorch's expandable segments, NCCL). It may lie
// on the host: then it is no device's.
#include "shim/core.h"
#include "shim/hook.h"

using namespace corral::shim;

CORRAL_HOOK(cuMemCreate, "cuMemCreate", 10020);
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
  const auto original = CORRAL_ORIGINAL(cuMemCreate);
  if (original == nullptr) return kNotFound;
  const CUresult result = original(handle, bytes, properties, flags);
  if (result == kOutOfMemory && properties->location.type == kLocationDevice) {
    allocation_refused("cuMemCreate", bytes, properties->location.id);
  }
  if (result == kSuccess) {
    const bool on_device = properties->location.type == kLocationDevice;
    allocated("cuMemCreate", MemoryKind::handle, *handle, bytes,
              on_device ? properties->location.id : kNoDevice);
  }
  return result;
}

CORRAL_HOOK(cuMemRelease, "cuMemRelease", 10020);
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const auto original = CORRAL_ORIGINAL(cuMemRelease);
  if (original == nullptr) return kNotFound;
  return free_memory(MemoryKind::handle, handle, [&] { return original(handle); });
}

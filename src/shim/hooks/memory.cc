// SPDX-License-Identifier: Apache-2.0
// Plain and managed memory. The forms of CUDA 2.0 with 32-bit addresses are not wrapped: no 64-bit
// program can use what they return.
#include "shim/core.h"
#include "shim/hook.h"

using namespace corral::shim;

CORRAL_HOOK(cuMemAlloc_v2, "cuMemAlloc", 3020);
CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  const auto original = CORRAL_ORIGINAL(cuMemAlloc_v2);
  if (original == nullptr) return kNotFound;
  const CUresult result = original(address, bytes);
  if (result == kSuccess) {
    allocated("cuMemAlloc_v2", MemoryKind::address, *address, bytes, current_device());
  } else if (result == kOutOfMemory) {
    allocation_refused("cuMemAlloc_v2", bytes, current_device());
  }
  return result;
}

CORRAL_HOOK(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020);
CUresult cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                            unsigned element_bytes) {
  const auto original = CORRAL_ORIGINAL(cuMemAllocPitch_v2);
  if (original == nullptr) return kNotFound;
  const CUresult result = original(address, pitch, width, height, element_bytes);
  if (result == kSuccess) {
    allocated("cuMemAllocPitch_v2", MemoryKind::address, *address, *pitch * height,
              current_device());
  } else if (result == kOutOfMemory) {
    allocation_refused("cuMemAllocPitch_v2", width * height, current_device());
  }
  return result;
}

CORRAL_HOOK(cuMemAllocManaged, "cuMemAllocManaged", 6000);
CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned flags) {
  const auto original = CORRAL_ORIGINAL(cuMemAllocManaged);
  if (original == nullptr) return kNotFound;
  const CUresult result = original(address, bytes, flags);
  if (result == kSuccess) {
    allocated_managed("cuMemAllocManaged", *address, bytes, current_device());
  }
  return result;
}

CORRAL_HOOK(cuMemFree_v2, "cuMemFree", 3020);
CUresult cuMemFree_v2(CUdeviceptr address) {
  const auto original = CORRAL_ORIGINAL(cuMemFree_v2);
  if (original == nullptr) return kNotFound;
  return free_memory(MemoryKind::address, address, [&] { return original(address); });
}

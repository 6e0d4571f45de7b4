// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory and its pools. What a pool keeps in reserve no call tells: only what is
// given out is counted. A free counts when it is called, before the stream comes to it.
#include "shim/core.h"
#include "shim/hook.h"

using namespace corral::shim;

namespace {

template <class Original>
CUresult allocate(const char* function, Original original, CUdeviceptr* address, size_t bytes,
                  CUstream stream) {
  if (original == nullptr) return kNotFound;
  const CUresult result = original(address, bytes, stream);
  if (result == kSuccess) {
    allocated(function, MemoryKind::address, *address, bytes, device_of_stream(stream));
  } else if (result == kOutOfMemory) {
    allocation_refused(function, bytes, device_of_stream(stream));
  }
  return result;
}

template <class Original>
CUresult allocate_from(const char* function, Original original, CUdeviceptr* address, size_t bytes,
                       CUmemoryPool pool, CUstream stream) {
  if (original == nullptr) return kNotFound;
  const CUresult result = original(address, bytes, pool, stream);
  if (result == kSuccess) {
    CUdevice device;
    // The pool of a device that the driver made itself is known by what comes out of it.
    if (!device_of_pool(pool, device)) device = device_of_address(*address);
    allocated(function, MemoryKind::address, *address, bytes, device);
  } else if (result == kOutOfMemory) {
    // A pool that the driver made itself is known by what comes out of it, and nothing did.
    CUdevice device;
    if (device_of_pool(pool, device)) allocation_refused(function, bytes, device);
  }
  return result;
}

template <class Original>
CUresult release(Original original, CUdeviceptr address, CUstream stream) {
  if (original == nullptr) return kNotFound;
  return free_memory(MemoryKind::address, address, [&] { return original(address, stream); });
}

}  // namespace

CORRAL_HOOK(cuMemAllocAsync, "cuMemAllocAsync", 11020);
CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
  return allocate("cuMemAllocAsync", CORRAL_ORIGINAL(cuMemAllocAsync), address, bytes, stream);
}

CORRAL_HOOK_PER_THREAD(cuMemAllocAsync_ptsz, "cuMemAllocAsync", 11020);
CUresult cuMemAllocAsync_ptsz(CUdeviceptr* address, size_t bytes, CUstream stream) {
  return allocate("cuMemAllocAsync_ptsz", CORRAL_ORIGINAL(cuMemAllocAsync_ptsz), address, bytes,
                  stream);
}

CORRAL_HOOK(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool pool,
                                 CUstream stream) {
  return allocate_from("cuMemAllocFromPoolAsync", CORRAL_ORIGINAL(cuMemAllocFromPoolAsync), address,
                       bytes, pool, stream);
}

CORRAL_HOOK_PER_THREAD(cuMemAllocFromPoolAsync_ptsz, "cuMemAllocFromPoolAsync", 11020);
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* address, size_t bytes, CUmemoryPool pool,
                                      CUstream stream) {
  return allocate_from("cuMemAllocFromPoolAsync_ptsz",
                       CORRAL_ORIGINAL(cuMemAllocFromPoolAsync_ptsz), address, bytes, pool, stream);
}

CORRAL_HOOK(cuMemFreeAsync, "cuMemFreeAsync", 11020);
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return release(CORRAL_ORIGINAL(cuMemFreeAsync), address, stream);
}

CORRAL_HOOK_PER_THREAD(cuMemFreeAsync_ptsz, "cuMemFreeAsync", 11020);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
  return release(CORRAL_ORIGINAL(cuMemFreeAsync_ptsz), address, stream);
}

CORRAL_HOOK(cuMemPoolCreate, "cuMemPoolCreate", 11020);
CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  const auto original = CORRAL_ORIGINAL(cuMemPoolCreate);
  if (original == nullptr) return kNotFound;
  const CUresult result = original(pool, properties);
  if (result == kSuccess) {
    const bool on_device =
        properties->type == kPoolPinned && properties->location.type == kLocationDevice;
    pool_made(*pool, on_device ? properties->location.id : kNoDevice);
  }
  return result;
}

CORRAL_HOOK(cuMemPoolDestroy, "cuMemPoolDestroy", 11020);
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  const auto original = CORRAL_ORIGINAL(cuMemPoolDestroy);
  if (original == nullptr) return kNotFound;
  // Before the call: its number may be given out again at once.
  pool_ended(pool);
  return original(pool);
}

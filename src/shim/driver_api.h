// SPDX-License-Identifier: Apache-2.0
// The few declarations of the CUDA driver API that the shim needs, so that no cuda.h is needed to
// build it. Names are those of the exported symbols: a header's macros would map them to the newest
// form. tests/shim checks them against the real headers where they exist.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CORRAL_EXPORT extern "C" __attribute__((visibility("default")))

using CUresult = int;
using CUdevice = int;
using CUcontext = void*;
using CUgreenCtx = void*;
using CUdevResourceDesc = void*;
using CUdeviceptr = unsigned long long;
using CUmemGenericAllocationHandle = unsigned long long;
using CUstream = void*;
using CUmemoryPool = void*;
using CUarray = void*;
using CUmipmappedArray = void*;
using CUexternalMemory = void*;
using CUgraph = void*;
using CUgraphNode = void*;

struct CUmemLocation {
  int type;  // kLocationDevice: id is a device ordinal
  int id;
};

// The beginning of CUmemAllocationProp; the rest is not looked at.
struct CUmemAllocationProp {
  int type;
  int requested_handle_types;
  CUmemLocation location;
};

struct CUmemPoolProps {
  int type;  // kPoolPinned; another kind is not a device's memory until it is used
  int handle_types;
  CUmemLocation location;
  unsigned char rest[72];
};

struct CUDA_MEM_ALLOC_NODE_PARAMS {
  CUmemPoolProps pool;
  const void* access;
  size_t access_count;
  size_t bytes;
  CUdeviceptr address;
};

// Beginnings likewise.
struct CUgraphNodeParams {
  int type;  // kNodeMemAlloc: `alloc` holds
  int reserved[3];
  CUDA_MEM_ALLOC_NODE_PARAMS alloc;
};

struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
  int type;
  unsigned char handle[16];
  unsigned long long bytes;
};
static_assert(offsetof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, bytes) == 24);

// Of CUDA 2.0, with 32-bit extents; and of today.
struct CUDA_ARRAY_DESCRIPTOR_v1 {
  unsigned width, height;
  int format;
  unsigned channels;
};
struct CUDA_ARRAY3D_DESCRIPTOR_v1 {
  unsigned width, height, depth;
  int format;
  unsigned channels, flags;
};
struct CUDA_ARRAY_DESCRIPTOR {
  size_t width, height;
  int format;
  unsigned channels;
};
struct CUDA_ARRAY3D_DESCRIPTOR {
  size_t width, height, depth;
  int format;
  unsigned channels, flags;
};

struct CUipcMemHandle {
  char reserved[64];
};

namespace corral::shim {

constexpr CUresult kSuccess = 0;
constexpr CUresult kOutOfMemory = 2;  // CUDA_ERROR_OUT_OF_MEMORY
constexpr CUresult kNotFound = 500;   // CUDA_ERROR_NOT_FOUND: the driver has no such function
constexpr int kLocationDevice = 1;    // CU_MEM_LOCATION_TYPE_DEVICE
constexpr int kPoolPinned = 1;        // CU_MEM_ALLOCATION_TYPE_PINNED
constexpr int kNodeMemAlloc = 10;     // CU_GRAPH_NODE_TYPE_MEM_ALLOC
constexpr int kPointerDevice = 9;     // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
// Flags of cuGetProcAddress: the form without _ptsz, and the one with.
constexpr uint64_t kLegacyStream = 1;
constexpr uint64_t kPerThreadStream = 2;
// CU_STREAM_PER_THREAD; it, CU_STREAM_LEGACY and null are streams of the current context.
constexpr uintptr_t kLastNamedStream = 2;

}  // namespace corral::shim

CORRAL_EXPORT CUresult cuInit(unsigned flags);
CORRAL_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal);

CORRAL_EXPORT CUresult cuGetProcAddress(const char* symbol, void** function, int cuda_version,
                                        uint64_t flags);
CORRAL_EXPORT CUresult cuGetProcAddress_v2(const char* symbol, void** function, int cuda_version,
                                           uint64_t flags, int* status);

CORRAL_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device);
CORRAL_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device);
CORRAL_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CORRAL_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device);
CORRAL_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);

CORRAL_EXPORT CUresult cuCtxCreate(CUcontext* context, unsigned flags, CUdevice device);
CORRAL_EXPORT CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device);
CORRAL_EXPORT CUresult cuCtxCreate_v3(CUcontext* context, void* affinity, int count, unsigned flags,
                                      CUdevice device);
CORRAL_EXPORT CUresult cuCtxCreate_v4(CUcontext* context, void* parameters, unsigned flags,
                                      CUdevice device);
CORRAL_EXPORT CUresult cuCtxDestroy(CUcontext context);
CORRAL_EXPORT CUresult cuCtxDestroy_v2(CUcontext context);
CORRAL_EXPORT CUresult cuCtxDetach(CUcontext context);

CORRAL_EXPORT CUresult cuGreenCtxCreate(CUgreenCtx* context, CUdevResourceDesc resources,
                                        CUdevice device, unsigned flags);
CORRAL_EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx context);
CORRAL_EXPORT CUresult cuCtxFromGreenCtx(CUcontext* context, CUgreenCtx green);

CORRAL_EXPORT CUresult cuGLCtxCreate(CUcontext* context, unsigned flags, CUdevice device);
CORRAL_EXPORT CUresult cuGLCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device);
CORRAL_EXPORT CUresult cuVDPAUCtxCreate(CUcontext* context, unsigned flags, CUdevice device,
                                        uint32_t vdp_device, void* vdp_proc_address);
CORRAL_EXPORT CUresult cuVDPAUCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device,
                                           uint32_t vdp_device, void* vdp_proc_address);

CORRAL_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes);
CORRAL_EXPORT CUresult cuMemFree_v2(CUdeviceptr address);

CORRAL_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                                   const CUmemAllocationProp* properties, unsigned long long flags);
CORRAL_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
CORRAL_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle,
                                                      void* os_handle, int handle_type);

CORRAL_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width,
                                          size_t height, unsigned element_bytes);
CORRAL_EXPORT CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned flags);

CORRAL_EXPORT CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream);
CORRAL_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr* address, size_t bytes, CUstream stream);
CORRAL_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes,
                                               CUmemoryPool pool, CUstream stream);
CORRAL_EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* address, size_t bytes,
                                                    CUmemoryPool pool, CUstream stream);
CORRAL_EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream);
CORRAL_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream);
CORRAL_EXPORT CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties);
CORRAL_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool);
CORRAL_EXPORT CUresult cuMemPoolImportPointer(CUdeviceptr* address, CUmemoryPool pool, void* data);

CORRAL_EXPORT CUresult cuArrayCreate(CUarray* array, const CUDA_ARRAY_DESCRIPTOR_v1* descriptor);
CORRAL_EXPORT CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* descriptor);
CORRAL_EXPORT CUresult cuArray3DCreate(CUarray* array,
                                       const CUDA_ARRAY3D_DESCRIPTOR_v1* descriptor);
CORRAL_EXPORT CUresult cuArray3DCreate_v2(CUarray* array,
                                          const CUDA_ARRAY3D_DESCRIPTOR* descriptor);
CORRAL_EXPORT CUresult cuArrayDestroy(CUarray array);
CORRAL_EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray* array,
                                              const CUDA_ARRAY3D_DESCRIPTOR* descriptor,
                                              unsigned levels);
CORRAL_EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray array);

CORRAL_EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle,
                                          unsigned flags);
CORRAL_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle,
                                             unsigned flags);
CORRAL_EXPORT CUresult cuImportExternalMemory(CUexternalMemory* memory,
                                              const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* descriptor);

CORRAL_EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph,
                                              const CUgraphNode* dependencies, size_t count,
                                              CUDA_MEM_ALLOC_NODE_PARAMS* parameters);
CORRAL_EXPORT CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph,
                                      const CUgraphNode* dependencies, size_t count,
                                      CUgraphNodeParams* parameters);
CORRAL_EXPORT CUresult cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph,
                                         const CUgraphNode* dependencies, const void* edges,
                                         size_t count, CUgraphNodeParams* parameters);

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

// The beginning of CUmemAllocationProp; the rest is not looked at.
struct CUmemAllocationProp {
  int type;
  int requested_handle_types;
  struct {
    int type;  // kLocationDevice: id is a device ordinal
    int id;
  } location;
};

namespace corral::shim {

constexpr CUresult kSuccess = 0;
constexpr CUresult kNotFound = 500;  // CUDA_ERROR_NOT_FOUND: the driver has no such function
constexpr int kLocationDevice = 1;   // CU_MEM_LOCATION_TYPE_DEVICE
// CU_GET_PROC_ADDRESS_LEGACY_STREAM: the forms without _ptsz and _ptds, which are what we wrap.
constexpr uint64_t kLegacyStream = 1;

}  // namespace corral::shim

CORRAL_EXPORT CUresult cuInit(unsigned flags);

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

// SPDX-License-Identifier: Apache-2.0
// libcuda.so.1 of the simulated machine: functions by base name and version, as
// cuGetProcAddress answers them.
#include <string.h>

#include "driver.h"

using namespace corral::sim;

SIM_EXPORT int cuGetProcAddress(const char* symbol, void** function, int version,
                                unsigned long long flags);
SIM_EXPORT int cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                   unsigned long long flags, int* status);

// Only addresses are wanted here; the real parameter lists are with the definitions.
#define SIM_FUNCTIONS(X)                                              \
  X(cuInit, 2000, cuInit)                                             \
  X(cuDriverGetVersion, 2020, cuDriverGetVersion)                     \
  X(cuDeviceGetCount, 2000, cuDeviceGetCount)                         \
  X(cuDeviceGet, 2000, cuDeviceGet)                                   \
  X(cuDeviceGetName, 2000, cuDeviceGetName)                           \
  X(cuDeviceGetUuid, 9020, cuDeviceGetUuid)                           \
  X(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2)                       \
  X(cuDeviceGetPCIBusId, 4010, cuDeviceGetPCIBusId)                   \
  X(cuDeviceGetByPCIBusId, 4010, cuDeviceGetByPCIBusId)               \
  X(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2)                      \
  X(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute)                 \
  X(cuCtxCreate, 2000, cuCtxCreate)                                   \
  X(cuCtxCreate, 3020, cuCtxCreate_v2)                                \
  X(cuCtxCreate, 11040, cuCtxCreate_v3)                               \
  X(cuCtxCreate, 12050, cuCtxCreate_v4)                               \
  X(cuCtxDetach, 2000, cuCtxDetach)                                   \
  X(cuCtxDestroy, 2000, cuCtxDestroy)                                 \
  X(cuCtxDestroy, 4000, cuCtxDestroy_v2)                              \
  X(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2)                      \
  X(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2)                        \
  X(cuCtxSetCurrent, 4000, cuCtxSetCurrent)                           \
  X(cuCtxGetCurrent, 4000, cuCtxGetCurrent)                           \
  X(cuCtxGetDevice, 2000, cuCtxGetDevice)                             \
  X(cuCtxGetId, 12000, cuCtxGetId)                                    \
  X(cuCtxSynchronize, 2000, cuCtxSynchronize)                         \
  X(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain)         \
  X(cuDevicePrimaryCtxRelease, 7000, cuDevicePrimaryCtxRelease)       \
  X(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2)   \
  X(cuDevicePrimaryCtxReset, 7000, cuDevicePrimaryCtxReset)           \
  X(cuDevicePrimaryCtxReset, 11000, cuDevicePrimaryCtxReset_v2)       \
  X(cuDevicePrimaryCtxGetState, 7000, cuDevicePrimaryCtxGetState)     \
  X(cuDevicePrimaryCtxSetFlags, 7000, cuDevicePrimaryCtxSetFlags)     \
  X(cuDevicePrimaryCtxSetFlags, 11000, cuDevicePrimaryCtxSetFlags_v2) \
  X(cuMemAlloc, 3020, cuMemAlloc_v2)                                  \
  X(cuMemFree, 3020, cuMemFree_v2)                                    \
  X(cuMemAllocPitch, 3020, cuMemAllocPitch_v2)                        \
  X(cuMemAllocManaged, 6000, cuMemAllocManaged)                       \
  X(cuMemAllocAsync, 11020, cuMemAllocAsync)                          \
  X(cuMemFreeAsync, 11020, cuMemFreeAsync)                            \
  X(cuMemCreate, 10020, cuMemCreate)                                  \
  X(cuMemRelease, 10020, cuMemRelease)                                \
  X(cuMemGetInfo, 3020, cuMemGetInfo_v2)                              \
  X(cuStreamCreate, 2000, cuStreamCreate)                             \
  X(cuStreamDestroy, 4000, cuStreamDestroy_v2)                        \
  X(cuStreamSynchronize, 2000, cuStreamSynchronize)                   \
  X(cuGetErrorName, 6000, cuGetErrorName)                             \
  X(cuGetErrorString, 6000, cuGetErrorString)                         \
  X(cuGetExportTable, 3000, cuGetExportTable)

#define SIM_PER_THREAD_FUNCTIONS(X)               \
  X(cuMemAllocAsync, 11020, cuMemAllocAsync_ptsz) \
  X(cuMemFreeAsync, 11020, cuMemFreeAsync_ptsz)   \
  X(cuStreamSynchronize, 7000, cuStreamSynchronize_ptsz)

#define SIM_DECLARE(base, since, symbol) void symbol();
extern "C" {
SIM_FUNCTIONS(SIM_DECLARE)
SIM_PER_THREAD_FUNCTIONS(SIM_DECLARE)
}

namespace corral::sim {
namespace {

// `since`: the CUDA version that brought this form, as the toolkit's typedefs number it.
struct Name {
  const char* base;
  int since;
  void* function;
  bool per_thread;
};

constexpr int kStatusFound = 0;
constexpr int kStatusNotFound = 1;
constexpr int kStatusVersion = 2;
constexpr unsigned long long kLegacyStream = 1;
constexpr unsigned long long kPerThreadStream = 2;

// The newest form that is not newer than `version`; among equals the per-thread one where asked.
int look_up(const char* symbol, int version, unsigned long long flags, void** function) {
#define SIM_LEGACY(base, since, symbol) {#base, since, reinterpret_cast<void*>(&symbol), false},
#define SIM_PER_THREAD(base, since, symbol) {#base, since, reinterpret_cast<void*>(&symbol), true},
  const Name names[] = {
      SIM_FUNCTIONS(SIM_LEGACY) SIM_PER_THREAD_FUNCTIONS(SIM_PER_THREAD){
          "cuGetProcAddress", 11030, reinterpret_cast<void*>(&cuGetProcAddress), false},
      {"cuGetProcAddress", 12000, reinterpret_cast<void*>(&cuGetProcAddress_v2), false},
  };
  const Name* best = nullptr;
  int status = kStatusNotFound;
  for (const Name& name : names) {
    if (strcmp(name.base, symbol) != 0 || (name.per_thread && flags != kPerThreadStream)) continue;
    if (name.since > version) {
      if (best == nullptr) status = kStatusVersion;
      continue;
    }
    const bool better =
        best == nullptr || name.per_thread || (!best->per_thread && name.since > best->since);
    if (better) best = &name;
    status = kStatusFound;
  }
  *function = best != nullptr ? best->function : nullptr;
  return status;
}

}  // namespace
}  // namespace corral::sim

// CUDA 11.3: a name that is not there is an error.
SIM_EXPORT int cuGetProcAddress(const char* symbol, void** function, int version,
                                unsigned long long flags) {
  if (symbol == nullptr || function == nullptr || flags > kPerThreadStream) return kInvalidValue;
  return look_up(symbol, version, flags, function) == kStatusFound ? kSuccess : kNotFound;
}

// CUDA 12: the call succeeds with a null pointer, and `status` says why.
SIM_EXPORT int cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                   unsigned long long flags, int* status) {
  static_assert(kLegacyStream < kPerThreadStream);
  if (symbol == nullptr || function == nullptr || flags > kPerThreadStream) return kInvalidValue;
  const int found = look_up(symbol, version, flags, function);
  if (status != nullptr) *status = found;
  return kSuccess;
}

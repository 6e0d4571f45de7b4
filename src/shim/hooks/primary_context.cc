// SPDX-License-Identifier: Apache-2.0
// The primary context of a device: what the CUDA runtime and every framework use. It is retained
// often and made once; only the making and the end are events.
#include "shim/core.h"
#include "shim/hook.h"

using namespace corral::shim;

CORRAL_HOOK(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000);
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  const auto original = CORRAL_ORIGINAL(cuDevicePrimaryCtxRetain);
  if (original == nullptr) return kNotFound;
  if (context_is_refused("cuDevicePrimaryCtxRetain", device, corral::wire::kContextPrimary)) {
    return kDeviceUnavailable;
  }
  const Retain retain = begin_retain(device);
  const CUresult result = original(context, device);
  end_retain("cuDevicePrimaryCtxRetain", device, retain, result == kSuccess ? *context : nullptr,
             result);
  return result;
}

namespace {

template <class Original>
CUresult release(const char* function, Original original, CUdevice device) {
  if (original == nullptr) return kNotFound;
  const CUresult result = original(device);
  if (result == kSuccess) primary_released(function, device);
  return result;
}

}  // namespace

CORRAL_HOOK(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", 7000);
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return release("cuDevicePrimaryCtxRelease", CORRAL_ORIGINAL(cuDevicePrimaryCtxRelease), device);
}

CORRAL_HOOK(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return release("cuDevicePrimaryCtxRelease_v2", CORRAL_ORIGINAL(cuDevicePrimaryCtxRelease_v2),
                 device);
}

CORRAL_HOOK(cuDevicePrimaryCtxReset, "cuDevicePrimaryCtxReset", 7000);
CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  return release("cuDevicePrimaryCtxReset", CORRAL_ORIGINAL(cuDevicePrimaryCtxReset), device);
}

CORRAL_HOOK(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return release("cuDevicePrimaryCtxReset_v2", CORRAL_ORIGINAL(cuDevicePrimaryCtxReset_v2), device);
}

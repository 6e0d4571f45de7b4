// SPDX-License-Identifier: Apache-2.0
// Green contexts: a part of a device's multiprocessors. The CUcontext that stands for one is a
// second handle of it, not a second context.
#include "shim/core.h"
#include "shim/hook.h"

using namespace corral::shim;

CORRAL_HOOK(cuGreenCtxCreate, "cuGreenCtxCreate", 12040);
CUresult cuGreenCtxCreate(CUgreenCtx* context, CUdevResourceDesc resources, CUdevice device,
                          unsigned flags) {
  const auto original = CORRAL_ORIGINAL(cuGreenCtxCreate);
  if (original == nullptr) return kNotFound;
  if (context_is_refused("cuGreenCtxCreate", device, corral::wire::kContextGreen)) {
    return kDeviceUnavailable;
  }
  const CUresult result = original(context, resources, device, flags);
  context_made("cuGreenCtxCreate", device, result == kSuccess ? *context : nullptr, result,
               corral::wire::kContextGreen);
  return result;
}

CORRAL_HOOK(cuCtxFromGreenCtx, "cuCtxFromGreenCtx", 12040);
CUresult cuCtxFromGreenCtx(CUcontext* context, CUgreenCtx green) {
  const auto original = CORRAL_ORIGINAL(cuCtxFromGreenCtx);
  if (original == nullptr) return kNotFound;
  const CUresult result = original(context, green);
  context_made("cuCtxFromGreenCtx", device_of_context(green),
               result == kSuccess ? *context : nullptr, result,
               corral::wire::kContextGreen | corral::wire::kContextView);
  return result;
}

CORRAL_HOOK(cuGreenCtxDestroy, "cuGreenCtxDestroy", 12040);
CUresult cuGreenCtxDestroy(CUgreenCtx context) {
  const auto original = CORRAL_ORIGINAL(cuGreenCtxDestroy);
  if (original == nullptr) return kNotFound;
  const EndingContext ending = begin_ending(context);
  const CUresult result = original(context);
  end_ending("cuGreenCtxDestroy", ending, result);
  return result;
}

// SPDX-License-Identifier: Apache-2.0
// Contexts made by hand. Each form of cuCtxCreate has arguments of its own, and old programs bind
// the old ones.
#include "shim/core.h"
#include "shim/hook.h"

using namespace corral::shim;

namespace {

template <class Original>
CUresult end(const char* function, Original original, CUcontext context) {
  if (original == nullptr) return kNotFound;
  const EndingContext ending = begin_ending(context);
  const CUresult result = original(context);
  end_ending(function, ending, result);
  return result;
}

}  // namespace

CORRAL_HOOK(cuCtxCreate, "cuCtxCreate", 2000);
CUresult cuCtxCreate(CUcontext* context, unsigned flags, CUdevice device) {
  const auto original = CORRAL_ORIGINAL(cuCtxCreate);
  if (original == nullptr) return kNotFound;
  return make_context("cuCtxCreate", context, device,
                      [&] { return original(context, flags, device); });
}

CORRAL_HOOK(cuCtxCreate_v2, "cuCtxCreate", 3020);
CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  const auto original = CORRAL_ORIGINAL(cuCtxCreate_v2);
  if (original == nullptr) return kNotFound;
  return make_context("cuCtxCreate_v2", context, device,
                      [&] { return original(context, flags, device); });
}

CORRAL_HOOK(cuCtxCreate_v3, "cuCtxCreate", 11040);
CUresult cuCtxCreate_v3(CUcontext* context, void* affinity, int count, unsigned flags,
                        CUdevice device) {
  const auto original = CORRAL_ORIGINAL(cuCtxCreate_v3);
  if (original == nullptr) return kNotFound;
  return make_context("cuCtxCreate_v3", context, device,
                      [&] { return original(context, affinity, count, flags, device); });
}

CORRAL_HOOK(cuCtxCreate_v4, "cuCtxCreate", 12050);
CUresult cuCtxCreate_v4(CUcontext* context, void* parameters, unsigned flags, CUdevice device) {
  const auto original = CORRAL_ORIGINAL(cuCtxCreate_v4);
  if (original == nullptr) return kNotFound;
  return make_context("cuCtxCreate_v4", context, device,
                      [&] { return original(context, parameters, flags, device); });
}

CORRAL_HOOK(cuCtxDestroy, "cuCtxDestroy", 2000);
CUresult cuCtxDestroy(CUcontext context) {
  return end("cuCtxDestroy", CORRAL_ORIGINAL(cuCtxDestroy), context);
}

CORRAL_HOOK(cuCtxDestroy_v2, "cuCtxDestroy", 4000);
CUresult cuCtxDestroy_v2(CUcontext context) {
  return end("cuCtxDestroy_v2", CORRAL_ORIGINAL(cuCtxDestroy_v2), context);
}

CORRAL_HOOK(cuCtxDetach, "cuCtxDetach", 2000);
CUresult cuCtxDetach(CUcontext context) {
  return end("cuCtxDetach", CORRAL_ORIGINAL(cuCtxDetach), context);
}

// SPDX-License-Identifier: Apache-2.0
// cuInit: the moment at which the driver reads CUDA_VISIBLE_DEVICES for good.
#include "shim/core.h"
#include "shim/hook.h"
#include "shim/policy.h"

using namespace corral::shim;

CORRAL_HOOK(cuInit, "cuInit", 2000);
CUresult cuInit(unsigned flags) {
  const auto original = CORRAL_ORIGINAL(cuInit);
  if (original == nullptr) return kNotFound;
  const bool recorded = begin_init();
  const CUresult result = original(flags);
  if (recorded) end_init(result);
  if (result == kSuccess) load_policy();
  return result;
}

// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress: how the CUDA runtime asks for nearly everything. Its two forms differ in the
// number of arguments, so each is answered with its own.
#include "shim/core.h"
#include "shim/hook.h"

using namespace corral::shim;

CORRAL_HOOK(cuGetProcAddress, "cuGetProcAddress", 11030);
CUresult cuGetProcAddress(const char* symbol, void** function, int cuda_version, uint64_t flags) {
  const auto original = CORRAL_ORIGINAL(cuGetProcAddress);
  if (original == nullptr) return kNotFound;
  const CUresult result = original(symbol, function, cuda_version, flags);
  const KeepErrno keep;
  if (result == kSuccess && function != nullptr) *function = replacement_of(symbol, *function);
  return result;
}

CORRAL_HOOK(cuGetProcAddress_v2, "cuGetProcAddress", 12000);
CUresult cuGetProcAddress_v2(const char* symbol, void** function, int cuda_version, uint64_t flags,
                             int* status) {
  const auto original = CORRAL_ORIGINAL(cuGetProcAddress_v2);
  if (original == nullptr) return kNotFound;
  const CUresult result = original(symbol, function, cuda_version, flags, status);
  const KeepErrno keep;
  if (result == kSuccess && function != nullptr) *function = replacement_of(symbol, *function);
  return result;
}

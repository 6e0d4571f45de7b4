// SPDX-License-Identifier: Apache-2.0
// Contexts that share memory with OpenGL and VDPAU.
#include "shim/core.h"
#include "shim/hook.h"

using namespace corral::shim;

CORRAL_HOOK(cuGLCtxCreate, "cuGLCtxCreate", 2000);
CUresult cuGLCtxCreate(CUcontext* context, unsigned flags, CUdevice device) {
  const auto original = CORRAL_ORIGINAL(cuGLCtxCreate);
  if (original == nullptr) return kNotFound;
  return make_context("cuGLCtxCreate", context, device,
                      [&] { return original(context, flags, device); });
}

CORRAL_HOOK(cuGLCtxCreate_v2, "cuGLCtxCreate", 3020);
CUresult cuGLCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  const auto original = CORRAL_ORIGINAL(cuGLCtxCreate_v2);
  if (original == nullptr) return kNotFound;
  return make_context("cuGLCtxCreate_v2", context, device,
                      [&] { return original(context, flags, device); });
}

CORRAL_HOOK(cuVDPAUCtxCreate, "cuVDPAUCtxCreate", 3010);
CUresult cuVDPAUCtxCreate(CUcontext* context, unsigned flags, CUdevice device, uint32_t vdp_device,
                          void* vdp_proc_address) {
  const auto original = CORRAL_ORIGINAL(cuVDPAUCtxCreate);
  if (original == nullptr) return kNotFound;
  return make_context("cuVDPAUCtxCreate", context, device, [&] {
    return original(context, flags, device, vdp_device, vdp_proc_address);
  });
}

CORRAL_HOOK(cuVDPAUCtxCreate_v2, "cuVDPAUCtxCreate", 3020);
CUresult cuVDPAUCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device,
                             uint32_t vdp_device, void* vdp_proc_address) {
  const auto original = CORRAL_ORIGINAL(cuVDPAUCtxCreate_v2);
  if (original == nullptr) return kNotFound;
  return make_context("cuVDPAUCtxCreate_v2", context, device, [&] {
    return original(context, flags, device, vdp_device, vdp_proc_address);
  });
}

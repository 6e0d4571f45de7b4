// SPDX-License-Identifier: Apache-2.0
// Refuses a context in place of the driver, where shim/policy says so.
#pragma once

#include "shim/driver_api.h"
#include "shim/policy.h"

namespace corral::shim {

constexpr CUresult kDeviceUnavailable = 46;  // CUDA_ERROR_DEVICE_UNAVAILABLE

// Records the refusal and says on stderr which line asked for the context: the first time for each
// line, device and function, and on stderr at every tenfold repetition. False: it is not refused.
bool refuse_context(const char* function, CUdevice device, uint32_t flags);

// First thing in every hook that makes a context, before the driver is called: the hook then
// returns kDeviceUnavailable. `flags` are wire::kContext….
inline bool context_is_refused(const char* function, CUdevice device, uint32_t flags) {
  return policy_is_active() && refuse_context(function, device, flags);
}

}  // namespace corral::shim

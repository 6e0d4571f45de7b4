// SPDX-License-Identifier: Apache-2.0
// Devices by number. Only a number that no device has is an event: a program that was written for
// the numbers of the whole machine asks for one when it is given a part.
#include <time.h>

#include "shim/core.h"
#include "shim/event_record.h"
#include "shim/hook.h"

using namespace corral::shim;
namespace wire = corral::wire;

namespace {

constexpr CUresult kInvalidDevice = 101;
// A program that counts devices by asking until there is none has one; more are not kept.
constexpr uint32_t kMaxRecords = 16;

void no_such_device(const char* function, int ordinal, CUresult result) {
  const KeepErrno keep;
  State* const state = ready_state();
  if (state == nullptr ||
      __atomic_load_n(&state->no_such_devices, __ATOMIC_RELAXED) >= kMaxRecords) {
    return;
  }
  __atomic_fetch_add(&state->no_such_devices, 1, __ATOMIC_RELAXED);
  EventRecord event(*state, wire::kNoSuchDevice);
  if (!event) return;
  event.builder().payload(wire::NoSuchDevicePayload{.ordinal = ordinal, .result = result});
  event.text(wire::kFunction, function);
  event.thread_name();
  event.stack();
  event.main_thread_stack();
  event.write();
}

}  // namespace

CORRAL_HOOK(cuDeviceGet, "cuDeviceGet", 2000);
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  const auto original = CORRAL_ORIGINAL(cuDeviceGet);
  if (original == nullptr) return kNotFound;
  const CUresult result = original(device, ordinal);
  if (result == kInvalidDevice) no_such_device("cuDeviceGet", ordinal, result);
  return result;
}

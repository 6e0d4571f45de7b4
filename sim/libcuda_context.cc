// SPDX-License-Identifier: Apache-2.0
// libcuda.so.1 of the simulated machine: contexts and streams.
#include <stdlib.h>

#include "driver.h"

namespace corral::sim {
namespace {

constexpr unsigned kStackDepth = 64;

struct Stack {
  Context* context[kStackDepth];
  unsigned depth;
};

Stack& stack() {
  static thread_local constinit Stack instance{};
  return instance;
}

Context* top() { return stack().depth == 0 ? nullptr : stack().context[stack().depth - 1]; }

int push(Context* context) {
  Stack& s = stack();
  if (s.depth == kStackDepth) return kUnknown;
  s.context[s.depth++] = context;
  return kSuccess;
}

// Whether the pointer is one of ours; a stranger must not be followed.
bool known(const Context* context) {
  for (const Context* c = driver().contexts; c != nullptr; c = c->next) {
    if (c == context) return true;
  }
  return false;
}

bool usable(const Context* context) {
  const Locked lock;
  return known(context) && context->alive;
}

}  // namespace

int current_context(Context** context) {
  *context = top();
  if (*context == nullptr) return kInvalidContext;
  return (*context)->alive ? kSuccess : kContextDestroyed;
}

int make_context(int device, bool primary, unsigned flags, Context** context) {
  Driver& d = driver();
  Process* process = d.machine.own();
  const Gpu& gpu = gpu_of(device);
  if (process == nullptr || memory_used(device) + gpu.context_bytes > memory_total(device)) {
    return kOutOfMemory;
  }
  Context* made = d.contexts;
  while (made != nullptr && made->alive) made = made->next;
  if (made == nullptr) {
    made = static_cast<Context*>(calloc(1, sizeof *made));
    if (made == nullptr) return kOutOfMemory;
    made->next = d.contexts;
    d.contexts = made;
  }
  made->device = device;
  made->primary = primary;
  made->flags = flags;
  made->id = d.next_context_id++;
  made->alive = true;
  const Visible& visible = d.devices.device[device];
  if (visible.mig >= 0) {
    process->mig = visible.gpu * kMaxMig + static_cast<unsigned>(visible.mig);
  }
  ++process->gpu[visible.gpu].contexts;
  *context = made;
  return kSuccess;
}

void end_context(Context* context) {
  Driver& d = driver();
  forget_allocations(context);
  context->alive = false;
  Process* process = d.machine.own();
  if (process == nullptr) return;
  const unsigned gpu = gpu_index(context->device);
  if (--process->gpu[gpu].contexts == 0 && !process->keeps_it_calm) d.machine.note_quiet(gpu);
}

namespace {

int create(Context** result, unsigned flags, int device) {
  if (result == nullptr) return kInvalidValue;
  if (!valid_device(device)) return kInvalidDevice;
  take_time(110);
  const Locked lock;
  Context* context = nullptr;
  if (const int failed = make_context(device, false, flags, &context)) return failed;
  *result = context;
  return push(context);
}

int destroy(Context* context) {
  if (context == nullptr) return kInvalidValue;
  const Locked lock;
  if (!known(context)) return kInvalidContext;
  if (!context->alive) return kContextDestroyed;
  if (context->primary) return kInvalidContext;
  end_context(context);
  if (top() == context) --stack().depth;
  return kSuccess;
}

void end_primary(Driver::Primary& primary) {
  if (primary.context != nullptr) end_context(primary.context);
  primary.context = nullptr;
  primary.references = 0;
}

int release_primary(int device) {
  if (!valid_device(device)) return kInvalidDevice;
  const Locked lock;
  Driver::Primary& primary = driver().primary[device];
  if (primary.references == 0) return kInvalidContext;
  if (--primary.references == 0) end_primary(primary);
  return kSuccess;
}

int reset_primary(int device) {
  if (!valid_device(device)) return kInvalidDevice;
  const Locked lock;
  end_primary(driver().primary[device]);
  return kSuccess;
}

int set_primary_flags(int device, unsigned flags) {
  if (!valid_device(device)) return kInvalidDevice;
  const Locked lock;
  driver().primary[device].flags = flags;
  return kSuccess;
}

// Under the mutex.
int ensure_primary(Driver::Primary& primary, int device) {
  if (primary.context != nullptr) return kSuccess;
  return make_context(device, true, primary.flags, &primary.context);
}

int primary_context(Context** result, int device) {
  Driver::Primary& primary = driver().primary[device];
  if (const int failed = ensure_primary(primary, device)) return failed;
  ++primary.references;
  *result = primary.context;
  return kSuccess;
}

}  // namespace

int activate_primary(int device) {
  if (const int refused = enter("activate_primary", device)) return refused;
  if (!valid_device(device)) return kInvalidDevice;
  const Locked lock;
  return ensure_primary(driver().primary[device], device);
}

}  // namespace corral::sim

using namespace corral::sim;

SIM_EXPORT int cuCtxCreate_v2(Context** context, unsigned flags, int device) {
  if (const int refused = enter("cuCtxCreate_v2", device)) return refused;
  return create(context, flags, device);
}

SIM_EXPORT int cuCtxCreate_v3(Context** context, void*, int, unsigned flags, int device) {
  if (const int refused = enter("cuCtxCreate_v3", device)) return refused;
  return create(context, flags, device);
}

SIM_EXPORT int cuCtxCreate_v4(Context** context, void*, unsigned flags, int device) {
  if (const int refused = enter("cuCtxCreate_v4", device)) return refused;
  return create(context, flags, device);
}

SIM_EXPORT int cuCtxDestroy_v2(Context* context) {
  if (const int refused = enter("cuCtxDestroy_v2")) return refused;
  return destroy(context);
}

// The forms of before the suffixes; old programs still link them.
SIM_EXPORT int cuCtxCreate(Context** context, unsigned flags, int device) {
  if (const int refused = enter("cuCtxCreate", device)) return refused;
  return create(context, flags, device);
}

SIM_EXPORT int cuCtxDestroy(Context* context) {
  if (const int refused = enter("cuCtxDestroy")) return refused;
  return destroy(context);
}

SIM_EXPORT int cuCtxDetach(Context* context) {
  if (const int refused = enter("cuCtxDetach")) return refused;
  return destroy(context);
}

SIM_EXPORT int cuCtxPushCurrent_v2(Context* context) {
  if (const int refused = enter("cuCtxPushCurrent_v2")) return refused;
  if (context == nullptr) return kInvalidValue;
  return usable(context) ? push(context) : kInvalidContext;
}

SIM_EXPORT int cuCtxPopCurrent_v2(Context** context) {
  if (const int refused = enter("cuCtxPopCurrent_v2")) return refused;
  if (stack().depth == 0) return kInvalidContext;
  if (context != nullptr) *context = top();
  --stack().depth;
  return kSuccess;
}

// Replaces the top of the stack; nullptr takes it off.
SIM_EXPORT int cuCtxSetCurrent(Context* context) {
  if (const int refused = enter("cuCtxSetCurrent")) return refused;
  if (context != nullptr && !usable(context)) return kInvalidContext;
  if (stack().depth > 0) --stack().depth;
  return context == nullptr ? kSuccess : push(context);
}

SIM_EXPORT int cuCtxGetCurrent(Context** context) {
  if (const int refused = enter("cuCtxGetCurrent")) return refused;
  if (context == nullptr) return kInvalidValue;
  *context = top();
  return kSuccess;
}

SIM_EXPORT int cuCtxGetDevice(int* device) {
  if (const int refused = enter("cuCtxGetDevice")) return refused;
  if (device == nullptr) return kInvalidValue;
  Context* context = nullptr;
  if (const int none = current_context(&context)) return none;
  *device = context->device;
  return kSuccess;
}

SIM_EXPORT int cuCtxGetId(Context* context, unsigned long long* id) {
  if (const int refused = enter("cuCtxGetId")) return refused;
  if (id == nullptr) return kInvalidValue;
  if (context == nullptr) {
    if (const int none = current_context(&context)) return none;
  }
  if (!usable(context)) return kInvalidContext;
  *id = context->id;
  return kSuccess;
}

SIM_EXPORT int cuCtxSynchronize() {
  if (const int refused = enter("cuCtxSynchronize")) return refused;
  Context* context = nullptr;
  return current_context(&context);
}

SIM_EXPORT int cuDevicePrimaryCtxRetain(Context** context, int device) {
  if (const int refused = enter("cuDevicePrimaryCtxRetain", device)) return refused;
  if (context == nullptr) return kInvalidValue;
  if (!valid_device(device)) return kInvalidDevice;
  {
    const Locked lock;
    if (driver().primary[device].context != nullptr) return primary_context(context, device);
  }
  take_time(110);
  const Locked lock;
  return primary_context(context, device);
}

SIM_EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
  if (const int refused = enter("cuDevicePrimaryCtxRelease_v2", device)) return refused;
  return release_primary(device);
}

SIM_EXPORT int cuDevicePrimaryCtxRelease(int device) {
  if (const int refused = enter("cuDevicePrimaryCtxRelease", device)) return refused;
  return release_primary(device);
}

SIM_EXPORT int cuDevicePrimaryCtxReset_v2(int device) {
  if (const int refused = enter("cuDevicePrimaryCtxReset_v2", device)) return refused;
  return reset_primary(device);
}

SIM_EXPORT int cuDevicePrimaryCtxReset(int device) {
  if (const int refused = enter("cuDevicePrimaryCtxReset", device)) return refused;
  return reset_primary(device);
}

SIM_EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  if (const int refused = enter("cuDevicePrimaryCtxGetState", device)) return refused;
  if (!valid_device(device)) return kInvalidDevice;
  if (flags == nullptr || active == nullptr) return kInvalidValue;
  const Locked lock;
  *flags = driver().primary[device].flags;
  *active = driver().primary[device].context != nullptr;
  return kSuccess;
}

SIM_EXPORT int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) {
  if (const int refused = enter("cuDevicePrimaryCtxSetFlags_v2", device)) return refused;
  return set_primary_flags(device, flags);
}

SIM_EXPORT int cuDevicePrimaryCtxSetFlags(int device, unsigned flags) {
  if (const int refused = enter("cuDevicePrimaryCtxSetFlags", device)) return refused;
  return set_primary_flags(device, flags);
}

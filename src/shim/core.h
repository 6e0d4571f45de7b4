// SPDX-License-Identifier: Apache-2.0
// What hooks tell: contexts, allocations and the first cuInit of this process.
#pragma once

#include <errno.h>
#include <stdint.h>

#include "shim/driver_api.h"
#include "trace/wire.h"

namespace corral::shim {

// Around everything that a hook does beside calling the driver.
class KeepErrno {
 public:
  KeepErrno() : saved_(errno) {}
  ~KeepErrno() { errno = saved_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  int saved_;
};

constexpr CUdevice kUnknownDevice = -1;

// Before the driver's cuInit reads them: keeps the variables. False: this call is not recorded,
// because one has succeeded or another thread is in one.
bool begin_init();
// After it, when begin_init() said true.
void end_init(CUresult result);

// A call that makes a context has returned. `flags` are wire::kContext….
void context_made(const char* function, CUdevice device, const void* context, CUresult result,
                  uint32_t flags);
// Makes a context by `call` and records it.
template <class Call>
CUresult make_context(const char* function, CUcontext* context, CUdevice device, Call call) {
  const CUresult result = call();
  context_made(function, device, result == kSuccess ? *context : nullptr, result, 0);
  return result;
}

// Before a call that ends a context, and after it when it succeeded or failed.
struct EndingContext {
  uint64_t context;
  uint64_t known;  // what the table says: device and flags
  bool found;
};
EndingContext begin_ending(const void* context);
void end_ending(const char* function, const EndingContext& ending, CUresult result);

// The primary context of a device. Most retains only count: those are cheap.
// Before a retain: whether it may be the one that activates, and whether it was active already.
struct Retain {
  bool recorded;  // known to be active: nothing to do
  bool active;
};
Retain begin_retain(CUdevice device);
void end_retain(const char* function, CUdevice device, const Retain& retain, const void* context,
                CUresult result);
// After a successful release or reset.
void primary_released(const char* function, CUdevice device);

// The device of a green context that this process made; kUnknownDevice when unknown.
CUdevice device_of_context(const void* context);

enum class MemoryKind { address, handle };

// An allocation succeeded; `key` is its address or its handle.
void allocated(const char* function, MemoryKind kind, uint64_t key, uint64_t bytes,
               CUdevice device);
// The device of the calling thread's current context.
CUdevice current_device();
// Before a free: takes the allocation out of its table, because the driver may give its address out
// again at once. After it: counts, or puts it back when the driver refused.
struct Freeing {
  MemoryKind kind;
  uint64_t key;
  uint64_t value;
  bool found;
};
Freeing begin_free(MemoryKind kind, uint64_t key);
void end_free(const Freeing& freeing, CUresult result);

}  // namespace corral::shim

// SPDX-License-Identifier: Apache-2.0
// What hooks tell: contexts, allocations and the first cuInit of this process.
#pragma once

#include <errno.h>
#include <stdint.h>

#include "shim/driver_api.h"
#include "shim/refusal.h"
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
constexpr CUdevice kNoDevice = -2;  // memory that is no device's: on the host

struct State;

// While a call of the driver that makes a context runs. A driver may hold locks then that
// look_for_unseen_contexts() would wait for, and what it would find is about to be recorded.
class MakingContext {
 public:
  MakingContext();
  ~MakingContext();
  MakingContext(const MakingContext&) = delete;
  MakingContext& operator=(const MakingContext&) = delete;

 private:
  State* state_;  // null: not counted, so not to be counted down either
};

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
  if (context_is_refused(function, device, 0)) return kDeviceUnavailable;
  const CUresult result = [&] {
    const MakingContext making;
    return call();
  }();
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

// The device of the calling thread's current context.
CUdevice current_device();
// The device of a stream, which need not be that of the current context.
CUdevice device_of_stream(CUstream stream);
// The device on which the memory behind an address lies.
CUdevice device_of_address(CUdeviceptr address);
// The device of physical memory.
CUdevice device_of_handle(CUmemGenericAllocationHandle handle);

// Memory pools that this process made, with their device.
void pool_made(CUmemoryPool pool, CUdevice device);
void pool_ended(CUmemoryPool pool);
bool device_of_pool(CUmemoryPool pool, CUdevice& device);

enum class MemoryKind { address, handle };

// An allocation succeeded; `key` is its address or its handle. On kNoDevice it is not counted, but
// known when it is freed.
void allocated(const char* function, MemoryKind kind, uint64_t key, uint64_t bytes,
               CUdevice device);
// The same of an array whose size the driver alone knows.
void allocated_of_unknown_size(const char* function, MemoryKind kind, uint64_t key,
                               CUdevice device);
// An allocation failed with kOutOfMemory.
void allocation_refused(const char* function, uint64_t bytes, CUdevice device);
// Of memory that moves between host and devices; `device` is that of the current context.
void allocated_managed(const char* function, CUdeviceptr address, uint64_t bytes, CUdevice device);
// Memory that another process or another API has made was opened here. 0 bytes: unknown.
void opened_shared(const char* function, uint64_t bytes, CUdevice device);
// A node that allocates was added to a graph: the memory comes when the graph is launched.
void graph_node_added(const char* function, uint64_t bytes, CUdevice device);

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
// A free by `call`.
template <class Call>
CUresult free_memory(MemoryKind kind, uint64_t key, Call call) {
  const Freeing freeing = begin_free(kind, key);
  const CUresult result = call();
  end_free(freeing, result);
  return result;
}

// Asks each device whether it has a primary context that no hook saw made, and records those. Never
// before cuInit has succeeded, and not while a context is being made. Where the shim writes an
// event anyway, and at each kLookInterval-th allocation on a device.
void look_for_unseen_contexts();
// Likewise at the exit, unless it is a signal handler in the middle of the driver that exits.
void look_for_unseen_contexts_at_exit();
constexpr uint64_t kLookInterval = 4096;

}  // namespace corral::shim

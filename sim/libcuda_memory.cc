// SPDX-License-Identifier: Apache-2.0
// libcuda.so.1 of the simulated machine: memory and streams. Addresses are numbers: nothing is
// behind them.
#include <stdlib.h>

#include "driver.h"

namespace corral::sim {
namespace {

constexpr DevicePointer kRemoved = ~DevicePointer{0};
constexpr std::uint64_t kAlignment = 512;

std::size_t first_place(DevicePointer address, std::size_t size) {
  return static_cast<std::size_t>((address / kAlignment) * 0x9e3779b97f4a7c15ULL >> 20) &
         (size - 1);
}

Allocation* find(DevicePointer address) {
  const Driver& d = driver();
  if (d.table_size == 0) return nullptr;
  for (std::size_t i = first_place(address, d.table_size);; i = (i + 1) & (d.table_size - 1)) {
    if (d.table[i].address == address) return &d.table[i];
    if (d.table[i].address == 0) return nullptr;
  }
}

void put(Allocation* table, std::size_t size, const Allocation& allocation) {
  std::size_t i = first_place(allocation.address, size);
  while (table[i].address != 0) i = (i + 1) & (size - 1);
  table[i] = allocation;
}

// Room for one more; drops the marks of removed entries on the way.
bool grow(Driver& d) {
  if (d.table_used * 2 < d.table_size) return true;
  std::size_t live = 0;
  for (std::size_t i = 0; i < d.table_size; ++i) {
    live += d.table[i].address != 0 && d.table[i].address != kRemoved ? 1U : 0U;
  }
  std::size_t size = 1024;
  while (size < live * 4) size *= 2;
  auto* table = static_cast<Allocation*>(calloc(size, sizeof(Allocation)));
  if (table == nullptr) return false;
  for (std::size_t i = 0; i < d.table_size; ++i) {
    if (d.table[i].address != 0 && d.table[i].address != kRemoved) put(table, size, d.table[i]);
  }
  free(d.table);
  d.table = table;
  d.table_size = size;
  d.table_used = live;
  return true;
}

std::uint64_t counted_bytes(const Allocation& allocation) {
  const bool on_gpu =
      allocation.kind == Allocation::Kind::device || allocation.kind == Allocation::Kind::handle;
  return on_gpu ? allocation.bytes : 0;
}

void remove(Allocation& allocation) {
  if (Process* process = driver().machine.own(); process != nullptr) {
    process->gpu[gpu_index(allocation.device)].allocated_bytes -= counted_bytes(allocation);
  }
  allocation.address = kRemoved;
}

// Asks who is alive only where the answer hangs on it: that costs system calls.
bool fits(int device, std::uint64_t bytes) {
  const std::uint64_t total = memory_total(device);
  const bool surely = gpu_of(device).reserved_bytes +
                          driver().machine.used_bytes_at_most(gpu_index(device)) + bytes <=
                      total;
  return surely || (bytes <= total && memory_used(device) + bytes <= total);
}

// Under the mutex.
int allocate(Allocation::Kind kind, std::uint64_t bytes, Context* context, int device,
             DevicePointer* address) {
  Driver& d = driver();
  const Allocation allocation{d.next_address, (bytes + kAlignment - 1) / kAlignment * kAlignment,
                              context, device, kind};
  const std::uint64_t counted = counted_bytes(allocation);
  if (!fits(device, counted)) return kOutOfMemory;
  Process* process = d.machine.own();
  if (process == nullptr || !grow(d)) return kOutOfMemory;
  put(d.table, d.table_size, allocation);
  ++d.table_used;
  d.next_address += allocation.bytes + kAlignment;
  process->gpu[gpu_index(device)].allocated_bytes += counted;
  *address = allocation.address;
  return kSuccess;
}

int allocate_in_current(Allocation::Kind kind, std::uint64_t bytes, DevicePointer* address) {
  if (address == nullptr || bytes == 0) return kInvalidValue;
  Context* context = nullptr;
  if (const int none = current_context(&context)) return none;
  const Locked lock;
  return allocate(kind, bytes, context, context->device, address);
}

int release(DevicePointer address, bool handle) {
  if (address == 0) return handle ? kInvalidValue : kSuccess;
  const Locked lock;
  Allocation* allocation = find(address);
  if (allocation == nullptr || allocation->address == kRemoved ||
      allocation->kind == Allocation::Kind::stream ||
      (allocation->kind == Allocation::Kind::handle) != handle) {
    return kInvalidValue;
  }
  remove(*allocation);
  return kSuccess;
}

}  // namespace

std::uint64_t memory_total(int device) {
  const Visible& visible = driver().devices.device[device];
  const Gpu& gpu = gpu_of(device);
  return visible.mig < 0 ? gpu.memory_bytes : gpu.mig[visible.mig].memory_bytes;
}

std::uint64_t memory_used(int device) {
  const Gpu& gpu = gpu_of(device);
  const Visible& visible = driver().devices.device[device];
  // An instance has its own memory, without the GPU's reserve.
  if (visible.mig >= 0)
    return driver().machine.instance_used_bytes(visible.gpu, static_cast<unsigned>(visible.mig));
  return gpu.reserved_bytes + driver().machine.used_bytes(gpu_index(device));
}

void forget_allocations(const Context* context) {
  Driver& d = driver();
  for (std::size_t i = 0; i < d.table_size; ++i) {
    Allocation& allocation = d.table[i];
    if (allocation.address != 0 && allocation.address != kRemoved &&
        allocation.context == context) {
      remove(allocation);
    }
  }
}

}  // namespace corral::sim

using namespace corral::sim;

SIM_EXPORT int cuMemAlloc_v2(DevicePointer* address, size_t bytes) {
  if (const int refused = enter("cuMemAlloc_v2")) return refused;
  return allocate_in_current(Allocation::Kind::device, bytes, address);
}

SIM_EXPORT int cuMemFree_v2(DevicePointer address) {
  if (const int refused = enter("cuMemFree_v2")) return refused;
  return release(address, false);
}

SIM_EXPORT int cuMemAllocPitch_v2(DevicePointer* address, size_t* pitch, size_t width,
                                  size_t height, unsigned element) {
  if (const int refused = enter("cuMemAllocPitch_v2")) return refused;
  if (pitch == nullptr || (element != 4 && element != 8 && element != 16)) return kInvalidValue;
  const size_t row = (width + kAlignment - 1) / kAlignment * kAlignment;
  const int result = allocate_in_current(Allocation::Kind::device, row * height, address);
  if (result == kSuccess) *pitch = row;
  return result;
}

// Managed memory goes to a GPU when a kernel touches it, and nothing runs here: it counts nowhere.
SIM_EXPORT int cuMemAllocManaged(DevicePointer* address, size_t bytes, unsigned flags) {
  if (const int refused = enter("cuMemAllocManaged")) return refused;
  if (flags != 1 && flags != 2) return kInvalidValue;
  return allocate_in_current(Allocation::Kind::managed, bytes, address);
}

SIM_EXPORT int cuMemAllocAsync(DevicePointer* address, size_t bytes, void*) {
  if (const int refused = enter("cuMemAllocAsync")) return refused;
  return allocate_in_current(Allocation::Kind::device, bytes, address);
}

SIM_EXPORT int cuMemAllocAsync_ptsz(DevicePointer* address, size_t bytes, void*) {
  if (const int refused = enter("cuMemAllocAsync_ptsz")) return refused;
  return allocate_in_current(Allocation::Kind::device, bytes, address);
}

SIM_EXPORT int cuMemFreeAsync(DevicePointer address, void*) {
  if (const int refused = enter("cuMemFreeAsync")) return refused;
  return release(address, false);
}

SIM_EXPORT int cuMemFreeAsync_ptsz(DevicePointer address, void*) {
  if (const int refused = enter("cuMemFreeAsync_ptsz")) return refused;
  return release(address, false);
}

// The beginning of CUmemAllocationProp.
struct AllocationProperties {
  int type;
  int handle_types;
  int location_type;  // 1: a device
  int location_id;
};

SIM_EXPORT int cuMemCreate(DevicePointer* handle, size_t bytes,
                           const AllocationProperties* properties, unsigned long long) {
  if (properties == nullptr) return kInvalidValue;
  if (const int refused = enter("cuMemCreate", properties->location_id)) return refused;
  if (handle == nullptr || bytes == 0 || bytes % (2 * kMiB) != 0 ||
      properties->location_type != 1) {
    return kInvalidValue;
  }
  if (!valid_device(properties->location_id)) return kInvalidDevice;
  const Locked lock;
  return allocate(Allocation::Kind::handle, bytes, nullptr, properties->location_id, handle);
}

SIM_EXPORT int cuMemRelease(DevicePointer handle) {
  if (const int refused = enter("cuMemRelease")) return refused;
  return release(handle, true);
}

SIM_EXPORT int cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  if (const int refused = enter("cuMemGetInfo_v2")) return refused;
  if (free_bytes == nullptr || total_bytes == nullptr) return kInvalidValue;
  Context* context = nullptr;
  if (const int none = current_context(&context)) return none;
  *total_bytes = memory_total(context->device);
  const std::uint64_t used = memory_used(context->device);
  *free_bytes = used < *total_bytes ? *total_bytes - used : 0;
  return kSuccess;
}

SIM_EXPORT int cuStreamCreate(void** stream, unsigned) {
  if (const int refused = enter("cuStreamCreate")) return refused;
  DevicePointer handle = 0;
  const int result =
      allocate_in_current(Allocation::Kind::stream, 1, stream == nullptr ? nullptr : &handle);
  if (result == kSuccess) *stream = reinterpret_cast<void*>(handle);
  return result;
}

SIM_EXPORT int cuStreamDestroy_v2(void* stream) {
  if (const int refused = enter("cuStreamDestroy_v2")) return refused;
  const Locked lock;
  Allocation* allocation = find(reinterpret_cast<DevicePointer>(stream));
  if (allocation == nullptr || allocation->address == kRemoved ||
      allocation->kind != Allocation::Kind::stream) {
    return kInvalidHandle;
  }
  remove(*allocation);
  return kSuccess;
}

// 0, 1 and 2 are the default streams of the current context.
SIM_EXPORT int cuStreamSynchronize(void* stream) {
  if (const int refused = enter("cuStreamSynchronize")) return refused;
  const auto handle = reinterpret_cast<DevicePointer>(stream);
  Context* context = nullptr;
  if (handle <= 2) return current_context(&context);
  const Locked lock;
  const Allocation* allocation = find(handle);
  return allocation != nullptr && allocation->kind == Allocation::Kind::stream ? kSuccess
                                                                               : kInvalidHandle;
}

SIM_EXPORT int cuStreamSynchronize_ptsz(void* stream) { return cuStreamSynchronize(stream); }

// SPDX-License-Identifier: Apache-2.0
// A driver with every way to memory and nothing behind them. Numbers tell where things lie: bit 40
// of an address and bit 0 of a handle or a stream are the device.
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

typedef unsigned long long Address;
typedef struct {
  char bytes[64];
} IpcHandle;

#define DEVICE_1 (1ULL << 40)

static Address next_number = 0x100000;
static Address next_address(int device) {
  next_number += 0x100000;
  return next_number | (device ? DEVICE_1 : 0);
}

int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
static int initialised;
int cuInit(unsigned flags) {
  initialised = 1;
  return (int)flags * 0;
}
// What may not be asked before.
static void must_be_initialised(void) {
  if (!initialised) abort();
}
int cuDeviceGetCount(int* count) {
  must_be_initialised();
  *count = 2;
  return 0;
}
int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  for (int i = 0; i < 16; ++i) uuid[i] = (unsigned char)(device + 1);
  return 0;
}
int cuCtxGetDevice(int* device) {
  *device = 0;
  return 0;
}
int cuStreamGetDevice(void* stream, int* device) {
  *device = (int)((uintptr_t)stream & 1);
  return 0;
}
int cuPointerGetAttribute(void* value, int attribute, Address address) {
  if (attribute != 9) return 1;
  *(int*)value = address & DEVICE_1 ? 1 : 0;
  return 0;
}
// The primary context is there long before the call that makes it comes back, and gone long before
// the one that ends it does.
static atomic_int references[2];
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  must_be_initialised();
  *flags = 0;
  *active = device < 2 && references[device] > 0;
  return device < 2 ? 0 : 101;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  ++references[device];
  usleep(300);
  *context = (void*)(uintptr_t)(0x5000 + device);
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
  --references[device];
  usleep(300);
  return 0;
}

int cuCtxCreate_v2(void** context, unsigned flags, int device) {
  (void)flags;
  *context = (void*)(uintptr_t)next_address(device);
  return 0;
}
int cuCtxDestroy_v2(void* context) { return context == 0; }

// N TiB are refused N times, and then there.
static int refused(size_t bytes) {
  static size_t refusals;
  if (refusals < bytes >> 40) {
    ++refusals;
    return 1;
  }
  if (bytes >> 40 != 0) refusals = 0;
  return 0;
}
#define OUT_OF_MEMORY 2

int cuMemAlloc_v2(Address* address, size_t bytes) {
  if (refused(bytes)) return OUT_OF_MEMORY;
  *address = next_address(0);
  return 0;
}
int cuMemAllocPitch_v2(Address* address, size_t* pitch, size_t width, size_t height,
                       unsigned size) {
  (void)size;
  if (refused(width * height)) return OUT_OF_MEMORY;
  *pitch = (width + 511) / 512 * 512;
  *address = next_address(0);
  return 0;
}
int cuMemAllocManaged(Address* address, size_t bytes, unsigned flags) {
  (void)bytes, (void)flags;
  *address = next_address(0);
  return 0;
}
// Refuses what nobody has: address 0xbad.
int cuMemFree_v2(Address address) { return address == 0xbad ? 1 : 0; }

int cuMemAllocAsync(Address* address, size_t bytes, void* stream) {
  if (refused(bytes)) return OUT_OF_MEMORY;
  *address = next_address((uintptr_t)stream > 2 ? (int)((uintptr_t)stream & 1) : 0);
  return 0;
}
int cuMemAllocAsync_ptsz(Address* address, size_t bytes, void* stream) {
  return cuMemAllocAsync(address, bytes, stream);
}
int cuMemAllocFromPoolAsync(Address* address, size_t bytes, uintptr_t pool, void* stream) {
  (void)stream;
  if (refused(bytes)) return OUT_OF_MEMORY;
  *address = next_address((int)(pool & 1));
  return 0;
}
int cuMemAllocFromPoolAsync_ptsz(Address* address, size_t bytes, uintptr_t pool, void* stream) {
  return cuMemAllocFromPoolAsync(address, bytes, pool, stream);
}
int cuMemFreeAsync(Address address, void* stream) {
  (void)stream;
  return cuMemFree_v2(address);
}
int cuMemFreeAsync_ptsz(Address address, void* stream) { return cuMemFreeAsync(address, stream); }
int cuMemPoolCreate(uintptr_t* pool, const int* properties) {
  *pool = (uintptr_t)next_address(0) | (uintptr_t)(properties[2] == 1 ? properties[3] : 0);
  return 0;
}
int cuMemPoolDestroy(uintptr_t pool) { return pool == 0; }
int cuMemPoolImportPointer(Address* address, uintptr_t pool, void* data) {
  (void)pool, (void)data;
  *address = next_address(1);
  return 0;
}

int cuMemCreate(Address* handle, size_t bytes, const int* properties, unsigned long long flags) {
  (void)properties, (void)flags;
  if (refused(bytes)) return OUT_OF_MEMORY;
  *handle = next_address(0);
  return 0;
}
int cuMemRelease(Address handle) { return handle == 0; }
int cuMemImportFromShareableHandle(Address* handle, void* os_handle, int type) {
  (void)os_handle, (void)type;
  *handle = next_address(0) | 1;
  return 0;
}
int cuMemGetAllocationPropertiesFromHandle(int* properties, Address handle) {
  for (int i = 0; i < 8; ++i) properties[i] = 0;
  properties[2] = 1;
  properties[3] = (int)(handle & 1);
  return 0;
}

int cuArrayCreate(Address* array, const void* descriptor) {
  (void)descriptor;
  *array = next_address(0);
  return 0;
}
int cuArrayCreate_v2(Address* array, const void* descriptor) {
  return cuArrayCreate(array, descriptor);
}
int cuArray3DCreate(Address* array, const void* descriptor) {
  return cuArrayCreate(array, descriptor);
}
int cuArray3DCreate_v2(Address* array, const void* descriptor) {
  return cuArrayCreate(array, descriptor);
}
int cuArrayDestroy(Address array) { return array == 0; }
int cuMipmappedArrayCreate(Address* array, const void* descriptor, unsigned levels) {
  (void)levels;
  return cuArrayCreate(array, descriptor);
}
int cuMipmappedArrayDestroy(Address array) { return array == 0; }

int cuIpcOpenMemHandle(Address* address, IpcHandle handle, unsigned flags) {
  (void)flags;
  *address = next_address(handle.bytes[63] == 'z');
  return 0;
}
int cuIpcOpenMemHandle_v2(Address* address, IpcHandle handle, unsigned flags) {
  return cuIpcOpenMemHandle(address, handle, flags);
}
int cuImportExternalMemory(Address* memory, const void* descriptor) {
  (void)descriptor;
  *memory = next_address(0);
  return 0;
}

int cuGraphAddMemAllocNode(void** node, void* graph, void* const* dependencies, size_t count,
                           void* parameters) {
  (void)graph, (void)dependencies, (void)count, (void)parameters;
  *node = (void*)(uintptr_t)next_address(0);
  return 0;
}
int cuGraphAddNode(void** node, void* graph, void* const* dependencies, size_t count,
                   void* parameters) {
  return cuGraphAddMemAllocNode(node, graph, dependencies, count, parameters);
}
int cuGraphAddNode_v2(void** node, void* graph, void* const* dependencies, const void* edges,
                      size_t count, void* parameters) {
  (void)edges;
  return cuGraphAddMemAllocNode(node, graph, dependencies, count, parameters);
}

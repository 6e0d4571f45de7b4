// SPDX-License-Identifier: Apache-2.0
// A driver that does nothing, so that what is measured is the shim.
#include <stddef.h>

int cuInit(unsigned flags) {
  (void)flags;
  return 0;
}
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int cuCtxGetDevice(int* device) {
  *device = 0;
  return 0;
}
int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  for (int i = 0; i < 16; ++i) uuid[i] = (unsigned char)(device + i);
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = 2;
  return 0;
}
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  (void)device;
  *flags = 0;
  *active = 0;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = (void*)(size_t)(0x1000 + device);
  return 0;
}
int cuCtxCreate_v2(void** context, unsigned flags, int device) {
  static size_t next = 0x10000;
  (void)flags, (void)device;
  *context = (void*)(next += 64);
  return 0;
}
int cuCtxDestroy_v2(void* context) {
  (void)context;
  return 0;
}
int cuMemAlloc_v2(unsigned long long* address, size_t bytes) {
  static unsigned long long next = 0x7f0000000000;
  *address = next;
  next += (bytes + 511) / 512 * 512;
  return 0;
}
int cuMemFree_v2(unsigned long long address) {
  (void)address;
  return 0;
}
int cuStreamCreate(void** stream, unsigned flags) {
  (void)flags;
  *stream = (void*)(size_t)0x5000;
  return 0;
}
int cuStreamGetDevice(void* stream, int* device) {
  (void)stream;
  *device = 0;
  return 0;
}
int cuMemAllocAsync(unsigned long long* address, size_t bytes, void* stream) {
  (void)stream;
  return cuMemAlloc_v2(address, bytes);
}
int cuMemFreeAsync(unsigned long long address, void* stream) {
  (void)address, (void)stream;
  return 0;
}
int cuMemPoolCreate(void** pool, const void* properties) {
  (void)properties;
  *pool = (void*)(size_t)0x6000;
  return 0;
}
int cuMemAllocFromPoolAsync(unsigned long long* address, size_t bytes, void* pool, void* stream) {
  (void)pool, (void)stream;
  return cuMemAlloc_v2(address, bytes);
}
int cuMemCreate(unsigned long long* handle, size_t bytes, const void* properties,
                unsigned long long flags) {
  (void)properties, (void)flags;
  return cuMemAlloc_v2(handle, bytes);
}
int cuMemRelease(unsigned long long handle) {
  (void)handle;
  return 0;
}
int cuArrayCreate_v2(void** array, const void* descriptor) {
  (void)descriptor;
  unsigned long long address;
  cuMemAlloc_v2(&address, 4096);
  *array = (void*)address;
  return 0;
}
int cuArrayDestroy(void* array) {
  (void)array;
  return 0;
}

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

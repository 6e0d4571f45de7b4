// SPDX-License-Identifier: Apache-2.0
// A driver of CUDA 11.3: the four-argument cuGetProcAddress only, no cuCtxCreate_v3 and later.
#include <stdint.h>
#include <string.h>

int cuDriverGetVersion(int* version) {
  *version = 11030;
  return 0;
}
int cuInit(unsigned flags) { return (int)flags * 0; }
int cuCtxCreate_v2(void** context, unsigned flags, int device) {
  (void)flags;
  *context = (void*)(uintptr_t)(0x1000 + device);
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = (void*)(uintptr_t)(0x2000 + device);
  return 0;
}
int cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
  (void)flags;
  *function = 0;
  if (strcmp(name, "cuCtxCreate") == 0 && version >= 3020) *function = (void*)cuCtxCreate_v2;
  if (strcmp(name, "cuInit") == 0) *function = (void*)cuInit;
  if (strcmp(name, "cuGetProcAddress") == 0 && version >= 11030) {
    *function = (void*)cuGetProcAddress;
  }
  return *function ? 0 : 500;
}

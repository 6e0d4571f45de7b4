// SPDX-License-Identifier: Apache-2.0
// A driver of some later CUDA: cuGetProcAddress answers with functions that are not the exported
// ones, there is a cuCtxCreate_v5 with other arguments, and a per-thread-stream form of an old
// name.
#include <stdint.h>
#include <string.h>

int cuDriverGetVersion(int* version) {
  *version = 14000;
  return 0;
}
int cuInit(unsigned flags) { return (int)flags * 0; }
int cuCtxCreate_v4(void** context, void* parameters, unsigned flags, int device) {
  (void)parameters, (void)flags;
  *context = (void*)(uintptr_t)(0x4000 + device);
  return 0;
}
static int inner_create_v4(void** context, void* parameters, unsigned flags, int device) {
  return cuCtxCreate_v4(context, parameters, flags, device);
}
int cuCtxCreate_v5(int device, void** context) {
  *context = (void*)(uintptr_t)(0x5000 + device);
  return 0;
}
int cuMemAlloc_v2(unsigned long long* address, size_t bytes) {
  *address = 0x100000 + bytes;
  return 0;
}
static int alloc_per_thread(unsigned long long* address, size_t bytes) {
  return cuMemAlloc_v2(address, bytes + 1);
}
int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags,
                        int* status) {
  *function = 0;
  if (strcmp(name, "cuCtxCreate") == 0) {
    if (version >= 14000) {
      *function = (void*)cuCtxCreate_v5;
    } else if (version >= 12050) {
      *function = (void*)inner_create_v4;
    }
  }
  if (strcmp(name, "cuMemAlloc") == 0 && version >= 3020) {
    *function = flags == 2 ? (void*)alloc_per_thread : (void*)cuMemAlloc_v2;
  }
  if (strcmp(name, "cuInit") == 0) *function = (void*)cuInit;
  if (strcmp(name, "cuGetProcAddress") == 0 && version >= 12000) {
    *function = (void*)cuGetProcAddress_v2;
  }
  if (status) *status = *function ? 0 : 1;
  return *function ? 0 : 500;
}

// SPDX-License-Identifier: Apache-2.0
// cuda_getproc [--four] [DEVICE…]: takes one symbol from the library and asks it for all others by
// base name and version, as CUDA 13's runtime does; --four uses the form of CUDA 11.3.
#include "cuda_api.h"

typedef int (*Lookup4)(const char*, void**, int, unsigned long long);
typedef int (*Lookup5)(const char*, void**, int, unsigned long long, int*);

static Lookup4 lookup4;
static Lookup5 lookup5;

static void* look_up(const char* base, int version) {
  void* function = NULL;
  int status = 0;
  if (lookup4 != NULL) {
    cuda_must(lookup4(base, &function, version, 0), base);
  } else {
    cuda_must(lookup5(base, &function, version, 0, &status), base);
  }
  if (function == NULL) {
    fprintf(stderr, "%s %d: status %d\n", base, version, status);
    exit(1);
  }
  return function;
}

int main(int argc, char** argv) {
  const int four = argc > 1 && strcmp(argv[1], "--four") == 0;
  const int first = four ? 2 : 1;
  void* library = cuda_library();
  if (four) {
    *(void**)&lookup4 = dlsym(library, "cuGetProcAddress");
  } else {
    *(void**)&lookup5 = dlsym(library, "cuGetProcAddress_v2");
    // The runtime asks the answer again, for the form that it was built for.
    *(void**)&lookup5 = look_up("cuGetProcAddress", 12000);
  }
  CudaApi api;
  memset(&api, 0, sizeof api);
  *(void**)&api.cuInit = look_up("cuInit", 2000);
  *(void**)&api.cuDeviceGetCount = look_up("cuDeviceGetCount", 2000);
  *(void**)&api.cuDeviceGetPCIBusId = look_up("cuDeviceGetPCIBusId", 4010);
  *(void**)&api.cuCtxSetCurrent = look_up("cuCtxSetCurrent", 4000);
  *(void**)&api.cuDevicePrimaryCtxRetain = look_up("cuDevicePrimaryCtxRetain", 7000);
  *(void**)&api.cuDevicePrimaryCtxGetState = look_up("cuDevicePrimaryCtxGetState", 7000);
  *(void**)&api.cuMemAlloc_v2 = look_up("cuMemAlloc", 3020);
  *(void**)&api.cuMemFree_v2 = look_up("cuMemFree", 3020);

  CUDA_MUST(api.cuInit(0));
  for (int i = first; i < argc || i == first; ++i) {
    cuda_use_device(&api, i < argc ? atoi(argv[i]) : 0);
    DevicePointer memory = 0;
    CUDA_MUST(api.cuMemAlloc_v2(&memory, 1 << 20));
    CUDA_MUST(api.cuMemFree_v2(memory));
  }
  cuda_print_contexts(&api);
  return 0;
}

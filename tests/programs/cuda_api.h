// SPDX-License-Identifier: Apache-2.0
// What the client programs share: the few driver functions they use, looked up as a job's runtime
// would, and the line that says on which GPUs a context is alive.
#pragma once

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef void* Context;
typedef unsigned long long DevicePointer;

#define CUDA_FUNCTIONS(X)                                             \
  X(cuInit, (unsigned))                                               \
  X(cuDeviceGetCount, (int*))                                         \
  X(cuDeviceGet, (int*, int))                                         \
  X(cuDeviceGetPCIBusId, (char*, int, int))                           \
  X(cuCtxCreate_v4, (Context*, void*, unsigned, int))                 \
  X(cuCtxDestroy_v2, (Context))                                       \
  X(cuCtxSetCurrent, (Context))                                       \
  X(cuCtxSynchronize, (void))                                         \
  X(cuDevicePrimaryCtxRetain, (Context*, int))                        \
  X(cuDevicePrimaryCtxRelease_v2, (int))                              \
  X(cuDevicePrimaryCtxGetState, (int, unsigned*, int*))               \
  X(cuMemAlloc_v2, (DevicePointer*, size_t))                          \
  X(cuMemFree_v2, (DevicePointer))                                    \
  X(cuGetProcAddress, (const char*, void**, int, unsigned long long)) \
  X(cuGetProcAddress_v2, (const char*, void**, int, unsigned long long, int*))

#define CUDA_MEMBER(name, parameters) int(*name) parameters;
typedef struct {
  CUDA_FUNCTIONS(CUDA_MEMBER)
} CudaApi;

__attribute__((unused)) static void* cuda_library(void) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(2);
  }
  return library;
}

__attribute__((unused)) static CudaApi cuda_load(void) {
  CudaApi api;
  void* library = cuda_library();
#define CUDA_LOOK_UP(name, parameters) *(void**)&api.name = dlsym(library, #name);
  CUDA_FUNCTIONS(CUDA_LOOK_UP)
  return api;
}

__attribute__((unused)) static void cuda_must(int code, const char* what) {
  if (code == 0) return;
  fprintf(stderr, "%s: CUDA error %d\n", what, code);
  exit(1);
}
#define CUDA_MUST(call) cuda_must((call), #call)

// The GPU's place in PCI bus order, which is nvidia-smi's number; `otherwise` where the machine
// does not say.
__attribute__((unused)) static int cuda_physical_index(const char* bus_id, int otherwise) {
  const char* root = getenv("CORRAL_SIM");
  char path[4096];
  snprintf(path, sizeof path, "%s/proc/driver/nvidia/gpus", root != NULL ? root : "");
  DIR* folder = opendir(path);
  if (folder == NULL) return otherwise;
  int below = 0;
  for (const struct dirent* entry; (entry = readdir(folder)) != NULL;) {
    // "0000:00:06.0" sorts as text as it does as a number.
    if (entry->d_name[0] != '.' && strcasecmp(entry->d_name, bus_id) < 0) ++below;
  }
  closedir(folder);
  return below;
}

// "contexts: 0 1": the GPUs on which this process's primary context is alive.
__attribute__((unused)) static void cuda_print_contexts(const CudaApi* api) {
  int count = 0;
  int alive[64] = {0};
  CUDA_MUST(api->cuDeviceGetCount(&count));
  for (int i = 0; i < count; ++i) {
    char bus_id[32];
    unsigned flags = 0;
    int active = 0;
    CUDA_MUST(api->cuDeviceGetPCIBusId(bus_id, (int)sizeof bus_id, i));
    CUDA_MUST(api->cuDevicePrimaryCtxGetState(i, &flags, &active));
    const int index = cuda_physical_index(bus_id, i);
    if (active && index < 64) alive[index] = 1;
  }
  printf("contexts:");
  for (int i = 0; i < 64; ++i) {
    if (alive[i]) printf(" %d", i);
  }
  printf("\n");
  fflush(stdout);
}

// What the runtime does at the first use of a device: retain its primary context, make it current.
__attribute__((unused, noinline)) static void cuda_use_device(const CudaApi* api, int device) {
  Context context = NULL;
  CUDA_MUST(api->cuDevicePrimaryCtxRetain(&context, device));
  CUDA_MUST(api->cuCtxSetCurrent(context));
}

// SPDX-License-Identifier: Apache-2.0
// cuda_restore_device [DEVICE]: works on DEVICE (1) and then sets the device of before again, as
// libraries do with cudaGetDevice and cudaSetDevice. Setting a device makes its context: the stray.
#include "cuda_api.h"

static int current_device = 0;

__attribute__((noinline)) static void set_device(const CudaApi* api, int device) {
  cuda_use_device(api, device);
  current_device = device;
}

__attribute__((noinline)) static void restore_device(const CudaApi* api, int before) {
  set_device(api, before);
}

__attribute__((noinline)) static void work_on(const CudaApi* api, int device) {
  const int before = current_device;
  set_device(api, device);
  DevicePointer memory = 0;
  CUDA_MUST(api->cuMemAlloc_v2(&memory, 16 << 20));
  CUDA_MUST(api->cuMemFree_v2(memory));
  restore_device(api, before);
}

int main(int argc, char** argv) {
  const CudaApi api = cuda_load();
  CUDA_MUST(api.cuInit(0));
  int count = 0;
  CUDA_MUST(api.cuDeviceGetCount(&count));
  const int wanted = argc > 1 ? atoi(argv[1]) : 1;
  // Where only one GPU is visible it is the one that was meant.
  work_on(&api, wanted < count ? wanted : 0);
  cuda_print_contexts(&api);
  return 0;
}

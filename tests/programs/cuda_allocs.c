// SPDX-License-Identifier: Apache-2.0
// cuda_allocs N [DEVICE]: N pairs of cuMemAlloc and cuMemFree of 4 KiB; prints the time of a pair.
#include <time.h>

#include "cuda_api.h"

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char** argv) {
  const long pairs = argc > 1 ? atol(argv[1]) : 1000;
  const CudaApi api = cuda_load();
  CUDA_MUST(api.cuInit(0));
  cuda_use_device(&api, argc > 2 ? atoi(argv[2]) : 0);
  const double start = now_ns();
  for (long i = 0; i < pairs; ++i) {
    DevicePointer memory = 0;
    CUDA_MUST(api.cuMemAlloc_v2(&memory, 4096));
    CUDA_MUST(api.cuMemFree_v2(memory));
  }
  printf("ns_per_pair: %.1f\n", pairs > 0 ? (now_ns() - start) / (double)pairs : 0.0);
  cuda_print_contexts(&api);
  return 0;
}

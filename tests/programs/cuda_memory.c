// SPDX-License-Identifier: Apache-2.0
// cuda_memory DEVICE STEP…: asks for memory and gives it back as an allocator would. +N: N MiB,
// which must be there; ?N: N MiB, which may be refused; -K: the last K are given back; R*STEP: R
// times. Ends with 1 when what must be there is refused.
#include "cuda_api.h"

#define MOST 4096

static DevicePointer memory[MOST];
static int count;

static void take(const CudaApi* api, long mib, int must) {
  const int code = api->cuMemAlloc_v2(&memory[count], (size_t)mib << 20);
  if (must) cuda_must(code, "cuMemAlloc");
  if (code == 0 && count < MOST - 1) ++count;
}

static void give_back(const CudaApi* api, long blocks) {
  for (; blocks > 0 && count > 0; --blocks) CUDA_MUST(api->cuMemFree_v2(memory[--count]));
}

int main(int argc, char** argv) {
  const CudaApi api = cuda_load();
  CUDA_MUST(api.cuInit(0));
  cuda_use_device(&api, argc > 1 ? atoi(argv[1]) : 0);
  for (int i = 2; i < argc; ++i) {
    char* step = argv[i];
    long times = 1;
    if (strchr(step, '*') != NULL) {
      times = strtol(step, &step, 10);
      ++step;
    }
    const long number = atol(step + 1);
    for (; times > 0; --times) {
      if (*step == '-')
        give_back(&api, number);
      else
        take(&api, number, *step == '+');
    }
  }
  return 0;
}

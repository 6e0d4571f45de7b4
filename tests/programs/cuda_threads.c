// SPDX-License-Identifier: Apache-2.0
// cuda_threads [N]: N threads (8) make contexts on all devices at the same moment, half of them
// primary ones, and allocate and free.
#include <pthread.h>

#include "cuda_api.h"

typedef struct {
  const CudaApi* api;
  pthread_barrier_t* start;
  int number;
  int devices;
} Task;

static void* work(void* argument) {
  const Task* task = argument;
  const int device = task->number / 2 % task->devices;
  Context own = NULL;
  pthread_barrier_wait(task->start);
  if (task->number % 2 == 0) {
    cuda_use_device(task->api, device);
  } else {
    CUDA_MUST(task->api->cuCtxCreate_v4(&own, NULL, 0, device));
  }
  for (int i = 0; i < 100; ++i) {
    DevicePointer memory = 0;
    CUDA_MUST(task->api->cuMemAlloc_v2(&memory, 1 << 20));
    CUDA_MUST(task->api->cuMemFree_v2(memory));
  }
  if (own != NULL) CUDA_MUST(task->api->cuCtxDestroy_v2(own));
  return NULL;
}

int main(int argc, char** argv) {
  enum { kMost = 256 };
  const int threads = argc > 1 ? atoi(argv[1]) : 8;
  if (threads < 1 || threads > kMost) return 64;
  const CudaApi api = cuda_load();
  CUDA_MUST(api.cuInit(0));
  int devices = 0;
  CUDA_MUST(api.cuDeviceGetCount(&devices));

  static pthread_t thread[kMost];
  static Task task[kMost];
  pthread_barrier_t start;
  pthread_barrier_init(&start, NULL, (unsigned)threads);
  for (int i = 0; i < threads; ++i) {
    task[i] = (Task){&api, &start, i, devices};
    if (pthread_create(&thread[i], NULL, work, &task[i]) != 0) return 1;
  }
  for (int i = 0; i < threads; ++i) pthread_join(thread[i], NULL);
  cuda_print_contexts(&api);
  return 0;
}

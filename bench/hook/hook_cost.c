// SPDX-License-Identifier: Apache-2.0
// hook_cost [PAIRS [CONTEXTS]]: nanoseconds a call on the driver that is found first. Run by
// hook_cost.py with and without the shim.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LIVE 4096  // allocations alive at a time in the second figure
#define ROUNDS 5   // the fastest counts

typedef unsigned long long Number;

static double now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void must(int code, const char* what) {
  if (code == 0) return;
  fprintf(stderr, "%s: CUDA error %d\n", what, code);
  exit(1);
}

static struct {
  int (*init)(unsigned);
  int (*retain)(void**, int);
  int (*set_current)(void*);
  int (*create)(void**, unsigned, int);
  int (*destroy)(void*);
  int (*stream_create)(void**, unsigned);
  int (*alloc)(Number*, size_t);
  int (*release)(Number);
  int (*alloc_async)(Number*, size_t, void*);
  int (*release_async)(Number, void*);
  int (*pool_create)(void**, const void*);
  int (*alloc_from)(Number*, size_t, void*, void*);
  int (*memory_create)(Number*, size_t, const void*, Number);
  int (*memory_release)(Number);
  int (*array_create)(void**, const void*);
  int (*array_destroy)(void*);
} cuda;

static void find(void* library, void* place, const char* name) {
  *(void**)place = dlsym(library, name);
}

static void open_driver(void) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  find(library, &cuda.init, "cuInit");
  find(library, &cuda.retain, "cuDevicePrimaryCtxRetain");
  find(library, &cuda.set_current, "cuCtxSetCurrent");
  find(library, &cuda.create, "cuCtxCreate_v2");
  find(library, &cuda.destroy, "cuCtxDestroy_v2");
  find(library, &cuda.stream_create, "cuStreamCreate");
  find(library, &cuda.alloc, "cuMemAlloc_v2");
  find(library, &cuda.release, "cuMemFree_v2");
  find(library, &cuda.alloc_async, "cuMemAllocAsync");
  find(library, &cuda.release_async, "cuMemFreeAsync");
  find(library, &cuda.pool_create, "cuMemPoolCreate");
  find(library, &cuda.alloc_from, "cuMemAllocFromPoolAsync");
  find(library, &cuda.memory_create, "cuMemCreate");
  find(library, &cuda.memory_release, "cuMemRelease");
  find(library, &cuda.array_create, "cuArrayCreate_v2");
  find(library, &cuda.array_destroy, "cuArrayDestroy");
}

static void* context;
static void* stream;  // one of its own, not the default
static void* pool;    // on device 0
// Of cuMemCreate and cuMemPoolCreate: pinned, on device 0.
static const int on_device[24] = {1, 0, 1, 0};

static void pair(void) {
  Number address;
  must(cuda.alloc(&address, 4096), "cuMemAlloc");
  must(cuda.release(address), "cuMemFree");
}

static void many_live(void) {
  static Number live[LIVE];
  for (int i = 0; i < LIVE; ++i) must(cuda.alloc(&live[i], 4096), "cuMemAlloc");
  for (int i = 0; i < LIVE; ++i) must(cuda.release(live[i]), "cuMemFree");
}

static void async_pair(void) {
  Number address;
  must(cuda.alloc_async(&address, 4096, NULL), "cuMemAllocAsync");
  must(cuda.release_async(address, NULL), "cuMemFreeAsync");
}

static void stream_pair(void) {
  Number address;
  must(cuda.alloc_async(&address, 4096, stream), "cuMemAllocAsync");
  must(cuda.release_async(address, stream), "cuMemFreeAsync");
}

static void pool_pair(void) {
  Number address;
  must(cuda.alloc_from(&address, 4096, pool, stream), "cuMemAllocFromPoolAsync");
  must(cuda.release_async(address, stream), "cuMemFreeAsync");
}

static void physical_pair(void) {
  Number handle;
  must(cuda.memory_create(&handle, 2 << 20, on_device, 0), "cuMemCreate");
  must(cuda.memory_release(handle), "cuMemRelease");
}

static void array_pair(void) {
  const struct {
    size_t width, height;
    int format;
    unsigned channels;
  } floats = {64, 64, 0x20, 1};
  void* array;
  must(cuda.array_create(&array, &floats), "cuArrayCreate");
  must(cuda.array_destroy(array), "cuArrayDestroy");
}

static void retain_again(void) { must(cuda.retain(&context, 0), "cuDevicePrimaryCtxRetain"); }

static void context_pair(void) {
  void* made;
  must(cuda.create(&made, 0, 0), "cuCtxCreate");
  must(cuda.destroy(made), "cuCtxDestroy");
}

static void measure(const char* name, void (*call)(void), int calls, int each) {
  double best = 1e18;
  for (int round = 0; round < ROUNDS; ++round) {
    const double start = now_ns();
    for (int i = 0; i < calls; ++i) call();
    const double one = (now_ns() - start) / calls / each;
    if (one < best) best = one;
  }
  printf("%s %.1f\n", name, best);
}

int main(int count, char** arguments) {
  const int pairs = (count > 1 ? atoi(arguments[1]) : 1000000) / ROUNDS;
  const int contexts = count > 2 ? atoi(arguments[2]) : 200;
  open_driver();
  must(cuda.init(0), "cuInit");
  must(cuda.retain(&context, 0), "cuDevicePrimaryCtxRetain");
  if (cuda.set_current != NULL) must(cuda.set_current(context), "cuCtxSetCurrent");
  must(cuda.stream_create(&stream, 1), "cuStreamCreate");
  must(cuda.pool_create(&pool, on_device), "cuMemPoolCreate");
  measure("pair", pair, pairs, 1);
  measure("pair_of_4096_live", many_live, pairs / LIVE + 1, LIVE);
  measure("async_pair", async_pair, pairs, 1);
  measure("async_pair_on_a_stream", stream_pair, pairs, 1);
  measure("pool_pair", pool_pair, pairs, 1);
  measure("physical_pair", physical_pair, pairs / 10 + 1, 1);
  measure("array_pair", array_pair, pairs / 10 + 1, 1);
  measure("retain_again", retain_again, pairs, 1);
  if (contexts > 0) measure("context", context_pair, contexts / ROUNDS + 1, 1);
  return 0;
}

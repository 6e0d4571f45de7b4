// SPDX-License-Identifier: Apache-2.0
// hook_cost [PAIRS [CONTEXTS]]: nanoseconds a call on the driver that is found first. Run by
// hook_cost.py with and without the shim.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LIVE 4096  // allocations alive at a time in the second figure

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

int main(int count, char** arguments) {
  const int pairs = count > 1 ? atoi(arguments[1]) : 1000000;
  const int contexts = count > 2 ? atoi(arguments[2]) : 200;
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  int (*init)(unsigned);
  int (*retain)(void**, int);
  int (*set_current)(void*);
  int (*create)(void**, unsigned, int);
  int (*destroy)(void*);
  int (*alloc)(unsigned long long*, size_t);
  int (*release)(unsigned long long);
  *(void**)&init = dlsym(library, "cuInit");
  *(void**)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
  *(void**)&set_current = dlsym(library, "cuCtxSetCurrent");
  *(void**)&create = dlsym(library, "cuCtxCreate_v2");
  *(void**)&destroy = dlsym(library, "cuCtxDestroy_v2");
  *(void**)&alloc = dlsym(library, "cuMemAlloc_v2");
  *(void**)&release = dlsym(library, "cuMemFree_v2");
  void* context;
  static unsigned long long live[LIVE];
  must(init(0), "cuInit");
  must(retain(&context, 0), "cuDevicePrimaryCtxRetain");
  if (set_current != NULL) must(set_current(context), "cuCtxSetCurrent");

  double best_pair = 1e18, best_live = 1e18, best_retain = 1e18;
  for (int round = 0; round < 5; ++round) {
    double start = now_ns();
    for (int i = 0; i < pairs / 5; ++i) {
      unsigned long long address;
      must(alloc(&address, 4096), "cuMemAlloc");
      must(release(address), "cuMemFree");
    }
    const double pair = (now_ns() - start) / (pairs / 5);
    if (pair < best_pair) best_pair = pair;

    const int rounds = pairs / 5 / LIVE + 1;
    start = now_ns();
    for (int i = 0; i < rounds; ++i) {
      for (int j = 0; j < LIVE; ++j) must(alloc(&live[j], 4096), "cuMemAlloc");
      for (int j = 0; j < LIVE; ++j) must(release(live[j]), "cuMemFree");
    }
    const double many = (now_ns() - start) / rounds / LIVE;
    if (many < best_live) best_live = many;

    start = now_ns();
    for (int i = 0; i < pairs / 5; ++i) must(retain(&context, 0), "cuDevicePrimaryCtxRetain");
    const double again = (now_ns() - start) / (pairs / 5);
    if (again < best_retain) best_retain = again;
  }
  const double start = now_ns();
  for (int i = 0; i < contexts; ++i) {
    must(create(&context, 0, 0), "cuCtxCreate");
    must(destroy(context), "cuCtxDestroy");
  }
  const double event = contexts > 0 ? (now_ns() - start) / contexts : 0;
  printf("pair %.1f\npair_of_4096_live %.1f\nretain_again %.1f\ncontext %.1f\n", best_pair,
         best_live, best_retain, event);
  return 0;
}

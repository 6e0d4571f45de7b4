// SPDX-License-Identifier: Apache-2.0
// How long one small launch takes after a pause: launch to synchronised, in microseconds, a line
// for each: "PAUSE_MS EMPTY_US WORK_US COPY_US". Empty: a kernel that returns; work: one warp of a
// chain of multiplications, whose time is the clock's; copy: 4 KiB to the host.
//
// usage: launch_latency PAUSE_MS:COUNT…
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef int (*Call)();

static const char kModule[] =
    ".version 7.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry empty() { ret; }\n"
    ".visible .entry work(.param .u64 out, .param .u32 count) {\n"
    "  .reg .f32 %f<3>; .reg .u32 %r<3>; .reg .u64 %d<2>; .reg .pred %p<2>;\n"
    "  ld.param.u64 %d1, [out]; ld.param.u32 %r1, [count];\n"
    "  mov.f32 %f1, 0f3F800001; mov.f32 %f2, 0f3F800001; mov.u32 %r2, 0;\n"
    "again:\n"
    "  fma.rn.f32 %f1, %f1, %f2, %f2; add.u32 %r2, %r2, 1;\n"
    "  setp.lt.u32 %p1, %r2, %r1; @%p1 bra again;\n"
    "  st.global.f32 [%d1], %f1; ret;\n}\n";

static void* driver;

static Call call(const char* name) {
  Call found = (Call)dlsym(driver, name);
  if (!found) {
    fprintf(stderr, "no %s in libcuda.so.1\n", name);
    exit(1);
  }
  return found;
}

static void must(const char* what, int result) {
  if (result != 0) {
    fprintf(stderr, "%s failed with %d\n", what, result);
    exit(1);
  }
}

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void pause_ms(int ms) {
  struct timespec pause = {ms / 1000, (ms % 1000) * 1000000L};
  if (ms > 0) nanosleep(&pause, NULL);
}

int main(int argc, char** argv) {
  driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  int device = 0;
  void *context = NULL, *module = NULL, *empty = NULL, *work = NULL;
  uint64_t memory = 0;
  static char host[4096];
  must("cuInit", call("cuInit")(0));
  must("cuDeviceGet", call("cuDeviceGet")(&device, 0));
  must("retain", call("cuDevicePrimaryCtxRetain")(&context, device));
  must("current", call("cuCtxSetCurrent")(context));
  must("module", call("cuModuleLoadData")(&module, kModule));
  must("empty", call("cuModuleGetFunction")(&empty, module, "empty"));
  must("work", call("cuModuleGetFunction")(&work, module, "work"));
  must("memory", call("cuMemAlloc_v2")(&memory, sizeof host));
  const Call launch = call("cuLaunchKernel"), synchronize = call("cuCtxSynchronize"),
             copy = call("cuMemcpyDtoH_v2");
  unsigned count = 20000;
  void* arguments[] = {&memory, &count};
  for (int i = 1; i < argc; ++i) {
    int pause = 0, times = 0;
    if (sscanf(argv[i], "%d:%d", &pause, &times) != 2) {
      fprintf(stderr, "%s: not PAUSE_MS:COUNT\n", argv[i]);
      return 64;
    }
    for (int n = -2; n < times; ++n) {  // two that warm up
      double took[3];
      for (int kind = 0; kind < 3; ++kind) {
        pause_ms(pause);
        const double began = now_us();
        if (kind == 0) must("launch", launch(empty, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
        if (kind == 1) must("launch", launch(work, 1, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL));
        if (kind == 2)
          must("copy", copy(host, memory, sizeof host));
        else
          must("synchronize", synchronize());
        took[kind] = now_us() - began;
      }
      if (n >= 0) printf("%d %.2f %.2f %.2f\n", pause, took[0], took[1], took[2]);
    }
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// The driver as the test programs open it.
#pragma once

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef void* Context;
typedef struct {
  void* library;
  int (*init)(unsigned);
  int (*create)(Context*, unsigned, int);
  int (*destroy)(Context);
  int (*retain)(Context*, int);
  int (*release)(int);
  int (*get_state)(int, unsigned*, int*);
  int (*set_current)(Context);
  int (*alloc)(unsigned long long*, size_t);
  int (*release_memory)(unsigned long long);
} Driver;

#define CHECK(condition)                                      \
  do {                                                        \
    if (!(condition)) {                                       \
      fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
      exit(1);                                                \
    }                                                         \
  } while (0)

static inline void* symbol(void* library, const char* name) { return dlsym(library, name); }

static inline Driver open_driver(const char* name, int flags) {
  Driver driver;
  driver.library = dlopen(name, RTLD_NOW | flags);
  if (driver.library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(2);
  }
  *(void**)&driver.init = symbol(driver.library, "cuInit");
  *(void**)&driver.create = symbol(driver.library, "cuCtxCreate_v2");
  *(void**)&driver.destroy = symbol(driver.library, "cuCtxDestroy_v2");
  *(void**)&driver.retain = symbol(driver.library, "cuDevicePrimaryCtxRetain");
  *(void**)&driver.release = symbol(driver.library, "cuDevicePrimaryCtxRelease_v2");
  *(void**)&driver.get_state = symbol(driver.library, "cuDevicePrimaryCtxGetState");
  *(void**)&driver.set_current = symbol(driver.library, "cuCtxSetCurrent");
  *(void**)&driver.alloc = symbol(driver.library, "cuMemAlloc_v2");
  *(void**)&driver.release_memory = symbol(driver.library, "cuMemFree_v2");
  return driver;
}

static inline Driver any_driver(void) { return open_driver("libcuda.so.1", 0); }

static inline Context make_context(const Driver* driver, int device) {
  Context context = NULL;
  CHECK(driver->create(&context, 0, device) == 0);
  return context;
}

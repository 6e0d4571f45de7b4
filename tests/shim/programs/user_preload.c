// SPDX-License-Identifier: Apache-2.0
// A user's own LD_PRELOAD, which stands before the shim in a program that links to the driver.
#include <dlfcn.h>
#include <stdio.h>

int cuCtxCreate_v4(void** context, void* parameters, unsigned flags, int device) {
  int (*next)(void**, void*, unsigned, int);
  *(void**)&next = dlsym(RTLD_NEXT, "cuCtxCreate_v4");
  const int result = next(context, parameters, flags, device);
  fprintf(stdout, "preload: %d\n", result);
  fflush(stdout);
  return result;
}

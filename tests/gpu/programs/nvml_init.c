// SPDX-License-Identifier: Apache-2.0
// Starts NVML and does nothing else: the least that a program which looks at GPUs has to pay.
// With "handles" as argument it also asks for the handle of each GPU.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
  if (init == NULL || init() != 0) return 3;
  if (argc < 2 || strcmp(argv[1], "handles") != 0) return 0;

  int (*get_count)(unsigned*) = (int (*)(unsigned*))dlsym(library, "nvmlDeviceGetCount_v2");
  int (*get_handle)(unsigned, void**) =
      (int (*)(unsigned, void**))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
  unsigned count = 0;
  if (get_count == NULL || get_handle == NULL || get_count(&count) != 0) return 4;
  for (unsigned i = 0; i < count; ++i) {
    void* handle = NULL;
    if (get_handle(i, &handle) != 0) return 5;
  }
  return 0;
}

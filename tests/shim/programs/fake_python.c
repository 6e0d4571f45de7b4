// SPDX-License-Identifier: Apache-2.0
// A program that looks like an interpreter of a version nobody knows, or of a known one whose
// structs are not where they should be: fake_python MAJOR.MINOR.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// NOLINTBEGIN(readability-identifier-naming): the interpreter's names.
unsigned long Py_Version;
char PyCode_Type[512], PyUnicode_Type[512], PyBytes_Type[512];
static void* garbage[64];

void* PyGILState_GetThisThreadState(void) {
  // Pointers into nowhere, one of them for every field that could be the frame.
  for (int i = 0; i < 64; ++i) garbage[i] = (void*)(0x10 + (unsigned long)i * 4096);
  return garbage;
}
// NOLINTEND(readability-identifier-naming)

int main(int count, char** arguments) {
  unsigned major = 0, minor = 0;
  if (count < 2 || sscanf(arguments[1], "%u.%u", &major, &minor) != 2) return 2;
  Py_Version = (unsigned long)major << 24 | (unsigned long)minor << 16;
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) return 2;
  int (*init)(unsigned);
  int (*create)(void**, unsigned, int);
  *(void**)&init = dlsym(library, "cuInit");
  *(void**)&create = dlsym(library, "cuCtxCreate_v2");
  void* context;
  return init(0) || create(&context, 0, 0);
}

// SPDX-License-Identifier: Apache-2.0
// proc_address FORM NAME VERSION FLAGS…: what cuGetProcAddress answers for each question, as
// "wrapped" (a function of the shim), "driver" or "none"; FORM is the number of arguments, 4 or 5.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char** arguments) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL || count < 2) return 2;
  const int five = strcmp(arguments[1], "5") == 0;
  void* const entry = dlsym(library, five ? "cuGetProcAddress_v2" : "cuGetProcAddress");
  if (entry == NULL) return 2;
  for (int i = 2; i + 2 < count; i += 3) {
    void* function = NULL;
    const int version = atoi(arguments[i + 1]);
    const uint64_t flags = (uint64_t)atoi(arguments[i + 2]);
    int status = 0, code;
    if (five) {
      int (*ask)(const char*, void**, int, uint64_t, int*);
      *(void**)&ask = entry;
      code = ask(arguments[i], &function, version, flags, &status);
    } else {
      int (*ask)(const char*, void**, int, uint64_t);
      *(void**)&ask = entry;
      code = ask(arguments[i], &function, version, flags);
    }
    Dl_info info;
    const char* answer = "none";
    if (code == 0 && function != NULL && dladdr(function, &info) != 0) {
      answer = strstr(info.dli_fname, "libcorral-driver") ? "driver" : "wrapped";
    }
    printf("%s\n", answer);
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// cuda_linked [DEVICE…]: linked with -lcuda, contexts by cuCtxCreate on the devices (0).
#include <stdio.h>
#include <stdlib.h>

int cuInit(unsigned);
int cuCtxCreate_v4(void**, void*, unsigned, int);
int cuCtxDestroy_v2(void*);
int cuMemAlloc_v2(unsigned long long*, size_t);
int cuMemFree_v2(unsigned long long);

static void must(int code, const char* what) {
  if (code == 0) return;
  fprintf(stderr, "%s: CUDA error %d\n", what, code);
  exit(1);
}

static void one_context(int device) {
  void* context = NULL;
  unsigned long long memory = 0;
  must(cuCtxCreate_v4(&context, NULL, 0, device), "cuCtxCreate");
  must(cuMemAlloc_v2(&memory, 1 << 20), "cuMemAlloc");
  must(cuMemFree_v2(memory), "cuMemFree");
  must(cuCtxDestroy_v2(context), "cuCtxDestroy");
}

int main(int argc, char** argv) {
  must(cuInit(0), "cuInit");
  if (argc == 1) one_context(0);
  for (int i = 1; i < argc; ++i) one_context(atoi(argv[i]));
  printf("made and ended: %d\n", argc == 1 ? 1 : argc - 1);
  return 0;
}

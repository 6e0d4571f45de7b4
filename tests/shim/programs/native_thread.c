// SPDX-License-Identifier: Apache-2.0
// A library that makes a context on a thread which no interpreter knows, as JAX does.
#include <dlfcn.h>
#include <pthread.h>

static int result = -1;

static void* make(void* unused) {
  (void)unused;
  int (*create)(void**, unsigned, int);
  void* context;
  *(void**)&create = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxCreate_v2");
  result = create(&context, 0, 0);
  return 0;
}

int make_on_native_thread(void) {
  pthread_t thread;
  if (pthread_create(&thread, 0, make, 0) != 0) return -1;
  pthread_join(thread, 0);
  return result;
}

// SPDX-License-Identifier: Apache-2.0
// A library that makes contexts on threads which no interpreter knows, as JAX does, and late ones
// on threads which it knows.
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static int result = -1;
static int still_to_make;

static int create(void) {
  int (*create)(void**, unsigned, int);
  void* context;
  *(void**)&create = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxCreate_v2");
  return create(&context, 0, 0);
}

static void sleep_ms(int ms) {
  struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
  nanosleep(&time, NULL);
}

static void* make(void* unused) {
  (void)unused;
  result = create();
  return NULL;
}

int make_on_native_thread(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, make, NULL) != 0) return -1;
  pthread_join(thread, NULL);
  return result;
}

static void* make_many(void* unused) {
  (void)unused;
  int (*create)(void**, unsigned, int);
  int (*destroy)(void*);
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  *(void**)&create = dlsym(library, "cuCtxCreate_v2");
  *(void**)&destroy = dlsym(library, "cuCtxDestroy_v2");
  while (__atomic_load_n(&still_to_make, __ATOMIC_RELAXED) > 0) {
    void* context;
    if (create(&context, 0, 0) != 0 || destroy(context) != 0) abort();
    __atomic_fetch_sub(&still_to_make, 1, __ATOMIC_RELAXED);
  }
  return NULL;
}

// Makes contexts on a thread of its own while the caller goes on.
int start_maker(int count) {
  pthread_t thread;
  still_to_make = count;
  return pthread_create(&thread, NULL, make_many, NULL) || pthread_detach(thread);
}

int maker_is_done(void) { return __atomic_load_n(&still_to_make, __ATOMIC_RELAXED) == 0; }

int make_after_ms(int ms) {
  sleep_ms(ms);
  return create();
}

static int exit_delay_ms;
static void linger(void) { sleep_ms(exit_delay_ms); }

// The process stays that long after the interpreter is gone.
void linger_at_exit_ms(int ms) {
  exit_delay_ms = ms;
  atexit(linger);
}

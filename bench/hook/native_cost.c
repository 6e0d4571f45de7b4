// SPDX-License-Identifier: Apache-2.0
// Makes contexts on a thread that no interpreter knows, for stack_cost.py.
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct job {
  int count;
  double* times_us;
};

static double now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static void* make(void* argument) {
  const struct job* const job = argument;
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  int (*create)(void**, unsigned, int);
  int (*destroy)(void*);
  *(void**)&create = dlsym(library, "cuCtxCreate_v2");
  *(void**)&destroy = dlsym(library, "cuCtxDestroy_v2");
  for (int i = 0; i < job->count; ++i) {
    void* context;
    const double begin = now_us();
    create(&context, 0, 0);
    job->times_us[i] = now_us() - begin;
    destroy(context);
  }
  return NULL;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

// The median, in microseconds.
double cost_on_native_thread(int count) {
  struct job job = {count, malloc((size_t)count * sizeof(double))};
  pthread_t thread;
  if (job.times_us == NULL || pthread_create(&thread, NULL, make, &job) != 0) abort();
  pthread_join(thread, NULL);
  qsort(job.times_us, (size_t)count, sizeof(double), ascending);
  const double median = job.times_us[count / 2];
  free(job.times_us);
  return median;
}

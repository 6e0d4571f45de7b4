// SPDX-License-Identifier: Apache-2.0
// embed_python LIBPYTHON main|other: a C program that runs an interpreter on its main thread or on
// another one. Contexts are made by the script, then by a thread without Python, then by a thread
// after the interpreter has ended.
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

static void* python;
static int (*create)(void**, unsigned, int);
static sem_t ran, end, ended;

static const char script[] =
    "import ctypes\n"
    "def make():\n"
    "    assert ctypes.CDLL('libcuda.so.1').cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0) "
    "== 0\n"
    "make()\n";

static void* make(void* unused) {
  (void)unused;
  void* context;
  return create(&context, 0, 0) == 0 ? NULL : &create;
}

static int make_on_thread(void) {
  pthread_t thread;
  void* failed = &create;
  if (pthread_create(&thread, NULL, make, NULL) != 0) return 1;
  pthread_join(thread, &failed);
  return failed != NULL;
}

static int run_script(void) {
  void (*initialize)(int);
  int (*run)(const char*);
  *(void**)&initialize = dlsym(python, "Py_InitializeEx");
  *(void**)&run = dlsym(python, "PyRun_SimpleString");
  initialize(0);
  return run(script);
}

static int finish(void) {
  int (*finalize)(void);
  *(void**)&finalize = dlsym(python, "Py_FinalizeEx");
  return finalize();
}

static void* run_elsewhere(void* unused) {
  (void)unused;
  if (run_script() != 0) return &create;
  sem_post(&ran);
  sem_wait(&end);
  const int failed = finish();
  sem_post(&ended);
  return failed ? &create : NULL;
}

int main(int count, char** arguments) {
  if (count != 3) return 2;
  python = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL);
  void* const cuda = dlopen("libcuda.so.1", RTLD_NOW);
  if (python == NULL || cuda == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  int (*init)(unsigned);
  *(void**)&init = dlsym(cuda, "cuInit");
  *(void**)&create = dlsym(cuda, "cuCtxCreate_v2");
  if (init(0) != 0) return 3;
  if (strcmp(arguments[2], "main") == 0) {
    if (run_script() != 0 || make_on_thread() != 0 || finish() != 0) return 4;
  } else {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_elsewhere, NULL) != 0) return 4;
    sem_wait(&ran);
    if (make_on_thread() != 0) return 5;
    sem_post(&end);
    sem_wait(&ended);
    pthread_join(thread, NULL);
  }
  return make_on_thread();
}

// SPDX-License-Identifier: Apache-2.0
// shim_client SITUATION [ARGUMENT…]: a program that uses the driver in one situation that the shim
// has to survive. Exit code 0: everything was as without the shim, as far as the program can tell.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver_client.h"

static int count_descriptors(void) {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != NULL) ++count;
  closedir(folder);
  return count;
}

static int use(int count, char** arguments) {
  const int deepbind = count > 1 && strcmp(arguments[1], "deepbind") == 0;
  const Driver driver = open_driver(arguments[0], deepbind ? RTLD_DEEPBIND : 0);
  CHECK(driver.init(0) == 0);
  make_context(&driver, 0);
  puts("used");
  return 0;
}

static int fork_before(void) {
  const Driver driver = any_driver();
  const pid_t child = fork();
  if (child == 0) {
    CHECK(driver.init(0) == 0);
    make_context(&driver, 1);
    exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  return status;
}

static int fork_after(void) {
  const Driver driver = any_driver();
  CHECK(driver.init(0) == 0);
  make_context(&driver, 0);
  const pid_t child = fork();
  if (child == 0) {
    // A child cannot use what its parent has made; it may ask, and gets an error.
    Context context;
    CHECK(driver.create(&context, 0, 1) != 0);
    exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  make_context(&driver, 1);
  return status;
}

static int exec_again(char* self) {
  const Driver driver = any_driver();
  CHECK(driver.init(0) == 0);
  make_context(&driver, 0);
  execl(self, self, "use", "libcuda.so.1", NULL);
  return 1;
}

typedef struct {
  const Driver* driver;
  pthread_barrier_t* start;
  int number;
} Task;

static void* work(void* argument) {
  const Task* const task = argument;
  pthread_barrier_wait(task->start);
  const int device = task->number % 2;
  make_context(task->driver, device);
  for (int i = 0; i < 200; ++i) {
    unsigned long long memory = 0;
    CHECK(task->driver->alloc(&memory, 4096) == 0);
    CHECK(task->driver->release_memory(memory) == 0);
  }
  return NULL;
}

static int threads(int count) {
  Driver driver = any_driver();
  pthread_barrier_t start;
  pthread_t handles[256];
  Task tasks[256];
  CHECK(count <= 256 && driver.init(0) == 0);
  pthread_barrier_init(&start, NULL, (unsigned)count);
  for (int i = 0; i < count; ++i) {
    tasks[i] = (Task){.driver = &driver, .start = &start, .number = i};
    CHECK(pthread_create(&handles[i], NULL, work, &tasks[i]) == 0);
  }
  for (int i = 0; i < count; ++i) CHECK(pthread_join(handles[i], NULL) == 0);
  return 0;
}

static int kill_in_the_middle(void) {
  const Driver driver = any_driver();
  CHECK(driver.init(0) == 0);
  make_context(&driver, 0);
  unsigned long long memory;
  CHECK(driver.alloc(&memory, 12345) == 0);
  raise(SIGKILL);
  return 1;
}

static const Driver* of_handler;
static atomic_int handled;
static void on_signal(int number) {
  (void)number;
  // The driver forbids this; that it is done anyway must not stop the shim.
  Context context = NULL;
  unsigned flags;
  int active;
  of_handler->get_state(0, &flags, &active);
  of_handler->retain(&context, 7777);  // fails in the driver, and is recorded as a failure
  ++handled;
}

static int signals(void) {
  const Driver driver = any_driver();
  CHECK(driver.init(0) == 0);
  of_handler = &driver;
  on_signal(0);
  signal(SIGPROF, on_signal);
  const struct itimerval often = {{0, 300}, {0, 300}};
  setitimer(ITIMER_PROF, &often, NULL);
  for (int i = 0; i < 3000 || handled < 20; ++i) driver.retain(&(Context){NULL}, 5555);
  const struct itimerval never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_PROF, &never, NULL);
  return 0;
}

static int reload(int count) {
  int before = 0;
  for (int i = 0; i < count; ++i) {
    const Driver driver = any_driver();
    CHECK(driver.init(0) == 0);
    make_context(&driver, 0);
    CHECK(dlclose(driver.library) == 0);
    if (i == 0) before = count_descriptors();
  }
  CHECK(count_descriptors() == before);
  return 0;
}

static int open_twice(void) {
  const Driver first = any_driver();
  const Driver second = open_driver("libcuda.so", 0);
  CHECK(first.library == second.library);
  CHECK(first.init == second.init);
  CHECK(dlclose(second.library) == 0);
  CHECK(first.init(0) == 0);
  make_context(&first, 0);
  return 0;
}

// The simulated driver changes errno now and then, as the real one does: what it left is printed.
static int shows_errno(void) {
  const Driver driver = any_driver();
  Context context;
  unsigned long long memory;
#define SHOW(call)                                    \
  do {                                                \
    errno = 77;                                       \
    const int code = (call);                          \
    printf("%s: %d, errno %d\n", #call, code, errno); \
  } while (0)
  SHOW(driver.init(0));
  SHOW(driver.create(&context, 0, 0));
  SHOW(driver.alloc(&memory, 128 << 20));
  SHOW(driver.release_memory(memory));
  SHOW(driver.destroy(context));
  SHOW(driver.retain(&context, 1));
  SHOW(driver.release(1));
  SHOW(driver.release(9));
  return 0;
}

// A daemon closes everything that it may have inherited, and opens files of its own.
static int close_descriptors(const char* path) {
  const Driver driver = any_driver();
  CHECK(driver.init(0) == 0);
  for (int fd = 3; fd < 2000; ++fd) close(fd);
  int own[1000];
  int count = 0;
  for (; count < 1000; ++count) {
    own[count] = open(path, O_RDWR | O_CREAT, 0600);
    if (own[count] < 0) break;
  }
  CHECK(count > 600);
  make_context(&driver, 0);
  struct stat info;
  CHECK(fstat(own[0], &info) == 0 && info.st_size == 0);
  return 0;
}

static int limit(const char* what) {
  const Driver driver = any_driver();
  const struct rlimit small = {4096, 4096};
  const struct rlimit none = {3, 3};
  if (strcmp(what, "file-size") == 0) CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
  CHECK(driver.init(0) == 0);
  if (strcmp(what, "files") == 0) CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
  for (int i = 0; i < 20; ++i) make_context(&driver, 0);
  puts("done");
  return 0;
}

static void* cancelled(void* argument) {
  const Driver* const driver = argument;
  pthread_cancel(pthread_self());
  make_context(driver, 0);  // must return: nothing in it may act on the cancellation
  _Exit(0);
}

static int cancellation(void) {
  Driver driver = any_driver();
  CHECK(driver.init(0) == 0);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, cancelled, &driver) == 0);
  pthread_join(thread, NULL);
  fputs("the thread was cancelled inside the driver\n", stderr);
  return 1;
}

static void* on_small_stack(void* argument) {
  make_context(argument, 0);
  return NULL;
}

static int small_stack(void) {
  Driver driver = any_driver();
  CHECK(driver.init(0) == 0);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  CHECK(pthread_attr_setstacksize(&attributes, 48 << 10) == 0);
  pthread_t thread;
  CHECK(pthread_create(&thread, &attributes, on_small_stack, &driver) == 0);
  return pthread_join(thread, NULL);
}

static int set_too_late(void) {
  const Driver driver = any_driver();
  CHECK(driver.init(0) == 0);
  make_context(&driver, 0);
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  make_context(&driver, 1);
  return 0;
}

static int leaves_no_dlerror(void) {
  dlerror();
  const Driver driver = any_driver();
  CHECK(driver.init(0) == 0);
  make_context(&driver, 0);
  CHECK(dlerror() == NULL);
  return 0;
}

static int primary(void) {
  const Driver driver = any_driver();
  Context context;
  CHECK(driver.init(0) == 0);
  for (int i = 0; i < 3; ++i) CHECK(driver.retain(&context, 1) == 0);
  CHECK(driver.release(1) == 0);
  CHECK(driver.retain(&context, 1) == 0);
  for (int i = 0; i < 3; ++i) CHECK(driver.release(1) == 0);
  CHECK(driver.retain(&context, 1) == 0);
  return 0;
}

static int memory(void) {
  const Driver driver = any_driver();
  int (*create)(unsigned long long*, size_t, const int*, unsigned long long);
  int (*release)(unsigned long long);
  *(void**)&create = symbol(driver.library, "cuMemCreate");
  *(void**)&release = symbol(driver.library, "cuMemRelease");
  CHECK(driver.init(0) == 0);
  make_context(&driver, 1);
  unsigned long long small, large, handle, host;
  CHECK(driver.alloc(&small, 1000) == 0);
  CHECK(driver.alloc(&large, 64 << 20) == 0);
  CHECK(driver.release_memory(small) == 0);
  CHECK(driver.release_memory(0xdead00000000) != 0);
  // type pinned, no handle types, location: device 0; then host
  const int on_device[16] = {1, 0, 1, 0};
  const int on_host[16] = {1, 0, 2, 0};
  CHECK(create(&handle, 2 << 20, on_device, 0) == 0);
  if (create(&host, 2 << 20, on_host, 0) == 0) CHECK(release(host) == 0);
  CHECK(release(handle) == 0);
  return 0;
}

int main(int count, char** arguments) {
  CHECK(count > 1);
  const char* const what = arguments[1];
  const char* const more = count > 2 ? arguments[2] : "";
  if (strcmp(what, "use") == 0) return use(count - 2, arguments + 2);
  if (strcmp(what, "fork-before") == 0) return fork_before();
  if (strcmp(what, "fork-after") == 0) return fork_after();
  if (strcmp(what, "exec") == 0) return exec_again(arguments[0]);
  if (strcmp(what, "threads") == 0) return threads(atoi(more));
  if (strcmp(what, "kill") == 0) return kill_in_the_middle();
  if (strcmp(what, "signals") == 0) return signals();
  if (strcmp(what, "reload") == 0) return reload(atoi(more));
  if (strcmp(what, "twice") == 0) return open_twice();
  if (strcmp(what, "errno") == 0) return shows_errno();
  if (strcmp(what, "close") == 0) return close_descriptors(more);
  if (strcmp(what, "limit") == 0) return limit(more);
  if (strcmp(what, "cancel") == 0) return cancellation();
  if (strcmp(what, "small-stack") == 0) return small_stack();
  if (strcmp(what, "late") == 0) return set_too_late();
  if (strcmp(what, "dlerror") == 0) return leaves_no_dlerror();
  if (strcmp(what, "primary") == 0) return primary();
  if (strcmp(what, "memory") == 0) return memory();
  fprintf(stderr, "unknown situation %s\n", what);
  return 2;
}

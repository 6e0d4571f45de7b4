// SPDX-License-Identifier: Apache-2.0
// shim_moments SITUATION [COUNT]: a program that forks, execs or exits at a bad moment, or does
// more than the trace can hold. Exit code 0: everything was as without the shim.
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver_client.h"

// Makes contexts and memory for ever.
static void* busy(void* argument) {
  const Driver* const driver = argument;
  for (;;) {
    Context context = NULL;
    unsigned long long memory = 0;
    if (driver->create(&context, 0, 0) == 0) {
      if (driver->alloc(&memory, 4096) == 0) driver->release_memory(memory);
      driver->destroy(context);
    }
  }
}

static void start_busy(Driver* driver, int count) {
  for (int i = 0; i < count; ++i) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, busy, driver) == 0);
  }
  usleep(20000);
}

// Children of a process whose threads are in the middle of everything.
static int fork_among_threads(int count) {
  static Driver driver;
  driver = any_driver();
  CHECK(driver.init(0) == 0);
  start_busy(&driver, 8);
  for (int i = 0; i < count; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      Context context;
      driver.create(&context, 0, 1);
      exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
  exit(0);
}

static const Driver* of_handler;
static atomic_int children;
static void fork_in_handler(int number) {
  (void)number;
  if (children >= 30) return;
  ++children;
  const pid_t child = fork();
  if (child == 0) {
    Context context = NULL;
    if (of_handler->create(&context, 0, 1) != 0) _exit(1);
    _exit(0);
  }
  int status = -1;
  if (waitpid(child, &status, 0) != child || status != 0) _exit(9);
}

static void tick(void (*handler)(int)) {
  const struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
  CHECK(sigaction(SIGPROF, &action, NULL) == 0);
  const struct itimerval often = {{0, 1000}, {0, 1000}};
  setitimer(ITIMER_PROF, &often, NULL);
}

// The fork interrupts whatever line of a hook it meets.
static int fork_within_a_hook(void) {
  const Driver driver = any_driver();
  CHECK(driver.init(0) == 0);
  of_handler = &driver;
  tick(fork_in_handler);
  while (children < 30) {
    Context context;
    CHECK(driver.create(&context, 0, 0) == 0);
    CHECK(driver.destroy(context) == 0);
  }
  const struct itimerval never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_PROF, &never, NULL);
  return 0;
}

static char* self_path;
static void* exec_in_thread(void* argument) {
  (void)argument;
  execl(self_path, self_path, "many", "1", NULL);
  _exit(1);
}

static int exec_from_a_thread(char* self) {
  static Driver driver;
  driver = any_driver();
  CHECK(driver.init(0) == 0);
  start_busy(&driver, 8);
  self_path = self;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, exec_in_thread, NULL) == 0);
  for (;;) pause();
}

static int exit_among_threads(void) {
  static Driver driver;
  driver = any_driver();
  CHECK(driver.init(0) == 0);
  start_busy(&driver, 16);
  exit(0);
}

static void exit_in_handler(int number) {
  (void)number;
  exit(0);
}

// Wherever it is: in the driver with its locks held, in a hook, or while a record is being written.
static int exit_within_a_hook(void) {
  Driver driver = any_driver();
  CHECK(driver.init(0) == 0);
  make_context(&driver, 0);
  tick(exit_in_handler);
  busy(&driver);
  return 1;
}

// Only small allocations: nearly all the time is spent in the driver, with its lock held.
static int exit_within_the_driver(void) {
  Driver driver = any_driver();
  CHECK(driver.init(0) == 0);
  make_context(&driver, 0);
  tick(exit_in_handler);
  for (;;) {
    unsigned long long memory = 0;
    CHECK(driver.alloc(&memory, 4096) == 0 && driver.release_memory(memory) == 0);
  }
}

static void* retain_and_release(void* argument) {
  const Driver* const driver = argument;
  for (int i = 0; i < 150; ++i) {
    Context context;
    CHECK(driver->retain(&context, 1) == 0 && driver->release(1) == 0);
  }
  return NULL;
}

// The primary context comes and goes in all threads, while others give the shim reason to look.
static int primary_among_threads(int count) {
  static Driver driver;
  driver = any_driver();
  CHECK(driver.init(0) == 0);
  start_busy(&driver, 2);
  pthread_t threads[16];
  CHECK(count <= 16);
  for (int i = 0; i < count; ++i)
    CHECK(pthread_create(&threads[i], NULL, retain_and_release, &driver) == 0);
  for (int i = 0; i < count; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  exit(0);
}

// So many events that they do not all fit.
static int many(int count) {
  const Driver driver = any_driver();
  CHECK(driver.init(0) == 0);
  for (int i = 0; i < count; ++i) {
    Context context;
    CHECK(driver.create(&context, 0, 0) == 0);
    CHECK(driver.destroy(context) == 0);
  }
  return 0;
}

int main(int count, char** arguments) {
  CHECK(count > 1);
  const char* const what = arguments[1];
  const char* const more = count > 2 ? arguments[2] : "";
  if (strcmp(what, "fork-among-threads") == 0) return fork_among_threads(atoi(more));
  if (strcmp(what, "fork-within") == 0) return fork_within_a_hook();
  if (strcmp(what, "exec-thread") == 0) return exec_from_a_thread(arguments[0]);
  if (strcmp(what, "exit-among-threads") == 0) return exit_among_threads();
  if (strcmp(what, "exit-within") == 0) return exit_within_a_hook();
  if (strcmp(what, "exit-within-driver") == 0) return exit_within_the_driver();
  if (strcmp(what, "primary-among-threads") == 0) return primary_among_threads(atoi(more));
  if (strcmp(what, "many") == 0) return many(atoi(more));
  fprintf(stderr, "unknown situation %s\n", what);
  return 2;
}

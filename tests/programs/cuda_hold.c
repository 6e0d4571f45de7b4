// SPDX-License-Identifier: Apache-2.0
// cuda_hold [--mib N] [--seconds S | --stdin] DEVICE…: contexts on the devices, N MiB in each, held
// for S seconds or until a line or the end comes on standard input. SIGTERM ends it in order.
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "cuda_api.h"

static volatile sig_atomic_t asked_to_end = 0;

static void end(int signal_number) {
  (void)signal_number;
  asked_to_end = 1;
}

static void hold(double seconds, int wait_for_stdin) {
  char byte = 0;
  while (wait_for_stdin && !asked_to_end && read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n') {
  }
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const double until = (double)now.tv_sec + (double)now.tv_nsec * 1e-9 + seconds;
  while (!asked_to_end && (double)now.tv_sec + (double)now.tv_nsec * 1e-9 < until) {
    const struct timespec nap = {0, 10 * 1000 * 1000};
    nanosleep(&nap, NULL);
    clock_gettime(CLOCK_MONOTONIC, &now);
  }
}

int main(int argc, char** argv) {
  size_t mib = 0;
  double seconds = 0;
  int wait_for_stdin = 0;
  int first = 1;
  for (; first < argc && argv[first][0] == '-'; ++first) {
    if (strcmp(argv[first], "--stdin") == 0) wait_for_stdin = 1;
    if (strcmp(argv[first], "--mib") == 0) mib = (size_t)atol(argv[++first]);
    if (strcmp(argv[first], "--seconds") == 0) seconds = atof(argv[++first]);
  }
  struct sigaction action = {.sa_handler = end};  // no SA_RESTART: read() must end
  sigaction(SIGTERM, &action, NULL);

  const CudaApi api = cuda_load();
  CUDA_MUST(api.cuInit(0));
  for (int i = first; i < argc; ++i) {
    cuda_use_device(&api, atoi(argv[i]));
    DevicePointer memory = 0;
    if (mib > 0) CUDA_MUST(api.cuMemAlloc_v2(&memory, mib << 20));
  }
  cuda_print_contexts(&api);
  hold(seconds, wait_for_stdin);
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// cuda_fork before|after|exec: a context in parent (the last device) and child (device 0), with the
// fork before or after the parent's cuInit, or with an exec of this program in the child.
// After a fork the driver is of no use to the child: it must answer 3.
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_api.h"

static int child_work(const char* mode) {
  const CudaApi api = cuda_load();
  const int result = api.cuInit(0);
  if (strcmp(mode, "after") == 0) {
    printf("child: cuInit %d\n", result);
    fflush(stdout);
    return result == 3 ? 0 : 1;
  }
  cuda_must(result, "cuInit in the child");
  cuda_use_device(&api, 0);
  printf("child ");
  cuda_print_contexts(&api);
  return 0;
}

static void parent_work(void) {
  const CudaApi api = cuda_load();
  int count = 0;
  CUDA_MUST(api.cuInit(0));
  CUDA_MUST(api.cuDeviceGetCount(&count));
  cuda_use_device(&api, count - 1);
}

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "before";
  if (strcmp(mode, "child") == 0) return child_work(mode);
  if (strcmp(mode, "before") != 0) parent_work();
  const pid_t child = fork();
  if (child == 0) {
    if (strcmp(mode, "exec") == 0) {
      execl("/proc/self/exe", argv[0], "child", (char*)NULL);
      _exit(127);
    }
    _exit(child_work(mode));
  }
  if (strcmp(mode, "before") == 0) parent_work();
  int status = 0;
  waitpid(child, &status, 0);
  const CudaApi api = cuda_load();
  cuda_print_contexts(&api);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

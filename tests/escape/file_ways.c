// SPDX-License-Identifier: Apache-2.0
// Opening the node by name, link, handle or number.
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "escape.h"
#include "ring.h"

static Outcome open_read(const char* path) { return judge(open(path, O_RDONLY)); }
static Outcome open_write(const char* path) { return judge(open(path, O_WRONLY)); }
static Outcome open_mode3(const char* path) { return judge(open(path, O_ACCMODE)); }
static Outcome openat_mode3(const char* path) {
  return judge((int)syscall(SYS_openat, AT_FDCWD, path, O_ACCMODE));
}
static Outcome open_high_word(const char* path) {
  return judge((int)syscall(SYS_openat, AT_FDCWD, path, 0x500000000ULL | O_ACCMODE));
}

static Outcome by_openat2(const char* path, uint64_t flags) {
  struct open_how how = {.flags = flags};
  const int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
  // Our own filter answers ENOSYS; the kernels this runs on have the call.
  return fd < 0 ? kRefused : judge(fd);
}
static Outcome openat2_read(const char* path) { return by_openat2(path, O_RDONLY); }
static Outcome openat2_mode3(const char* path) { return by_openat2(path, O_ACCMODE); }

static Outcome by_ring(const char* path, int flags) {
  struct io_uring_params params;
  const int ring = ring_make(&params);
  if (ring < 0) return kRefused;
  const int fd = ring_open(ring, &params, path, flags);
  return fd < 0 ? kRefused : judge(fd);
}
static Outcome io_uring_read(const char* path) { return by_ring(path, O_RDONLY); }
static Outcome io_uring_mode3(const char* path) { return by_ring(path, O_ACCMODE); }

#if defined(__x86_64__)
// The 32-bit entry of the kernel, from a 64-bit program.
static Outcome int80_mode3(const char* path) {
  char* low =
      mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
  if (low == MAP_FAILED) return kBroken;
  snprintf(low, 4096, "%s", path);
  enum { kOpen32 = 5 };
  long result;
  __asm__ volatile("int $0x80"
                   : "=a"(result)
                   : "a"((long)kOpen32), "b"(low), "c"((long)O_ACCMODE), "d"(0L)
                   : "memory", "r8", "r9", "r10", "r11");
  const int fd = (int)result;
  if (fd >= 0) return judge(fd);
  return fd == -ENOSYS ? kAbsent : kRefused;
}
static Outcome x32_mode3(const char* path) {
  enum { kX32Bit = 0x40000000 };
  const int fd = (int)syscall(kX32Bit + SYS_open, path, O_ACCMODE);
  return fd < 0 && errno == ENOSYS ? kAbsent : judge(fd);
}
#else
static Outcome int80_mode3(const char* path) { return (void)path, kAbsent; }
static Outcome x32_mode3(const char* path) { return (void)path, kAbsent; }
#endif

// Runs a program beside us (ESCAPE_FOLDER) and passes its outcome on.
static Outcome run_beside(const char* program, char* const arguments[], char* const environment[]) {
  char path[512];
  const char* folder = getenv("ESCAPE_FOLDER");
  if (folder == NULL) return kBroken;
  snprintf(path, sizeof path, "%s/%s", folder, program);
  if (access(path, X_OK) != 0) return kAbsent;
  const pid_t pid = fork();
  if (pid == 0) {
    execve(path, arguments, environment);
    _exit(errno == ENOEXEC ? kAbsent : kBroken);
  }
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return kBroken;
  return WEXITSTATUS(status);
}
static Outcome program_32_read(const char* path) {
  char* const arguments[] = {"escape32", (char*)path, "read", NULL};
  return run_beside("escape32", arguments, environ);
}
static Outcome program_32_mode3(const char* path) {
  char* const arguments[] = {"escape32", (char*)path, NULL};
  return run_beside("escape32", arguments, environ);
}
static Outcome program_static(const char* path) {
  char* const arguments[] = {"escape_static", "open_any", (char*)path, NULL};
  return run_beside("escape_static", arguments, environ);
}
// Everything that was set in the environment is gone, so a preloaded or variable-based confinement
// is too.
static Outcome env_reset(const char* path) {
  char node[64];
  snprintf(node, sizeof node, "ESCAPE_NODE=%s", getenv("ESCAPE_NODE"));
  char* const arguments[] = {"escape", "open_any", (char*)path, NULL};
  char* const environment[] = {node, NULL};
  return run_beside("escape", arguments, environment);
}

static Outcome by_reopened_path(const char* path, int flags) {
  const int fd = open(path, O_PATH);
  if (fd < 0) return kRefused;
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  return judge(open(link, flags));
}
static Outcome opath_reopen(const char* path) { return by_reopened_path(path, O_RDWR); }
static Outcome opath_reopen_mode3(const char* path) { return by_reopened_path(path, O_ACCMODE); }

static Outcome by_symlink(const char* path) {
  const char* link = in_tmp("symlink");
  if (symlink(path, link) != 0) return kBroken;
  return try_every_mode(link);
}

static Outcome by_dot_dot(const char* path) {
  char detour[512];
  snprintf(detour, sizeof detour, "/proc/self/cwd/../../../../../../..%s", path);
  return try_every_mode(detour);
}

// Names beside the node, where the folder lets us make them. All are taken away again.
static Outcome hard_link(const char* path) {
  char link_path[512];
  snprintf(link_path, sizeof link_path, "%s-link", path);
  if (link(path, link_path) != 0) return errno == EACCES || errno == EPERM ? kRefused : kAbsent;
  const Outcome outcome = try_every_mode(link_path);
  unlink(link_path);
  return outcome;
}
static Outcome rename_node(const char* path) {
  char other[512];
  snprintf(other, sizeof other, "%s-renamed", path);
  if (rename(path, other) != 0) return kRefused;
  const Outcome outcome = try_every_mode(other);
  rename(other, path);
  return outcome;
}
static Outcome rename_across(const char* path) {
  const char* other = "/dev/shm/escape-renamed";
  if (rename(path, other) != 0) return kRefused;
  const Outcome outcome = try_every_mode(other);
  rename(other, path);
  return outcome;
}

static dev_t target_number(void) {
  unsigned want_major = 0;
  unsigned want_minor = 0;
  sscanf(getenv("ESCAPE_NODE"), "%u:%u", &want_major, &want_minor);
  return makedev(want_major, want_minor);
}
static Outcome by_mknod(const char* node) {
  if (mknod(node, S_IFCHR | 0666, target_number()) != 0) return kRefused;
  const Outcome outcome = try_every_mode(node);
  unlink(node);
  return outcome;
}
static Outcome mknod_tmp(const char* path) { return (void)path, by_mknod(in_tmp("node")); }
static Outcome mknod_shm(const char* path) { return (void)path, by_mknod("/dev/shm/escape-node"); }
static Outcome mknod_dev(const char* path) {
  char node[512];
  snprintf(node, sizeof node, "%s-made", path);
  return by_mknod(node);
}
static Outcome make_again(const char* path) {
  if (unlink(path) != 0) return kRefused;
  const bool made = mknod(path, S_IFCHR | 0666, target_number()) == 0;
  if (made) chmod(path, 0666);
  return made ? try_every_mode(path) : kRefused;
}

static Outcome by_handle(const char* path, int flags) {
  union {
    struct file_handle handle;
    char room[sizeof(struct file_handle) + 128];
  } name = {.handle = {.handle_bytes = 128}};
  int mount_id;
  if (name_to_handle_at(AT_FDCWD, path, &name.handle, &mount_id, 0) != 0)
    return errno == EOPNOTSUPP ? kAbsent : kRefused;
  const int folder = open("/dev", O_RDONLY | O_DIRECTORY);
  if (folder < 0) return kRefused;
  return judge(open_by_handle_at(folder, &name.handle, flags));
}
static Outcome handle_read(const char* path) { return by_handle(path, O_RDONLY); }
static Outcome handle_mode3(const char* path) { return by_handle(path, O_ACCMODE); }

static int64_t monotonic_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

// Another process exchanges a symbolic link all the time; the check and the open may see two
// things.
static Outcome race_symlink(const char* path) {
  enum { kPatienceNs = 200 * 1000 * 1000 };
  const char* link = in_tmp("race");
  char other[300];
  snprintf(other, sizeof other, "%s-other", link);
  if (symlink("/dev/null", link) != 0 || symlink(path, other) != 0) return kBroken;
  const pid_t pid = fork();
  if (pid == 0) {
    for (;;) syscall(SYS_renameat2, AT_FDCWD, link, AT_FDCWD, other, 2 /* RENAME_EXCHANGE */);
  }
  Outcome outcome = kRefused;
  const int64_t end = monotonic_ns() + kPatienceNs;
  while (outcome != kOpen && monotonic_ns() < end) outcome = judge(open(link, O_RDWR));
  kill(pid, 9);
  waitpid(pid, NULL, 0);
  return outcome;
}

const Way kFileWays[] = {
    {"open_any", try_every_mode},
    {"open_read", open_read},
    {"open_write", open_write},
    {"open_mode3", open_mode3},
    {"openat_mode3", openat_mode3},
    {"open_high_word", open_high_word},
    {"openat2_read", openat2_read},
    {"openat2_mode3", openat2_mode3},
    {"io_uring_read", io_uring_read},
    {"io_uring_mode3", io_uring_mode3},
    {"int80_mode3", int80_mode3},
    {"x32_mode3", x32_mode3},
    {"program_32_read", program_32_read},
    {"program_32_mode3", program_32_mode3},
    {"program_static", program_static},
    {"env_reset", env_reset},
    {"opath_reopen", opath_reopen},
    {"opath_reopen_mode3", opath_reopen_mode3},
    {"symlink", by_symlink},
    {"dot_dot", by_dot_dot},
    {"race_symlink", race_symlink},
    {"hard_link", hard_link},
    {"rename_node", rename_node},
    {"rename_across", rename_across},
    {"mknod_tmp", mknod_tmp},
    {"mknod_shm", mknod_shm},
    {"mknod_dev", mknod_dev},
    {"make_again", make_again},
    {"handle_read", handle_read},
    {"handle_mode3", handle_mode3},
    {NULL, NULL},
};

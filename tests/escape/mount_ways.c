// SPDX-License-Identifier: Apache-2.0
// Mounts, namespaces and roots. All mounting is done in a mount namespace of the attempt's own.
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "escape.h"

static const char* name_of(const char* path) { return strrchr(path, '/') + 1; }

static bool write_text(const char* path, const char* text) {
  const int fd = open(path, O_WRONLY);
  if (fd < 0) return false;
  const bool done = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
  close(fd);
  return done;
}

static bool private_mounts(void) {
  return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

// No layer of ours refuses user namespaces: where they fail, the host does not give them.
static bool user_namespace(void) {
  const uid_t uid = getuid();
  const gid_t gid = getgid();
  if (unshare(CLONE_NEWUSER) != 0) exit(kAbsent);
  char map[64];
  write_text("/proc/self/setgroups", "deny");
  snprintf(map, sizeof map, "0 %u 1", uid);
  if (!write_text("/proc/self/uid_map", map)) return false;
  snprintf(map, sizeof map, "0 %u 1", gid);
  return write_text("/proc/self/gid_map", map);
}

static Outcome in_folder(const char* folder, const char* path) {
  char node[512];
  snprintf(node, sizeof node, "%s/%s", folder, name_of(path));
  return try_every_mode(node);
}

static const char* new_folder(const char* name) {
  const char* folder = in_tmp(name);
  mkdir(folder, 0755);
  return folder;
}

static Outcome bind_here(const char* path) {
  const char* folder = new_folder("bind");
  if (mount("/dev", folder, NULL, MS_BIND | MS_REC, NULL) != 0) return kRefused;
  return in_folder(folder, path);
}
static Outcome mount_bind(const char* path) {
  return private_mounts() ? bind_here(path) : kRefused;
}
static Outcome userns_bind(const char* path) {
  if (!user_namespace() || !private_mounts()) return kRefused;
  return bind_here(path);
}
static Outcome userns_open(const char* path) {
  return user_namespace() ? try_every_mode(path) : kRefused;
}
static Outcome mount_devtmpfs(const char* path) {
  const char* folder = new_folder("devtmpfs");
  if (!private_mounts() || mount("devtmpfs", folder, "devtmpfs", 0, NULL) != 0)
    return errno == ENODEV ? kAbsent : kRefused;
  return in_folder(folder, path);
}
static Outcome mount_move(const char* path) {
  const char* folder = new_folder("move");
  if (!private_mounts() || mount("/dev", folder, NULL, MS_MOVE, NULL) != 0) return kRefused;
  return in_folder(folder, path);
}

// A mount that is attached nowhere: no path leads to it.
static Outcome in_detached(int tree, const char* path) {
  if (tree < 0) return errno == ENOSYS ? kAbsent : kRefused;
  const int modes[] = {O_RDWR, O_RDONLY, O_ACCMODE};
  for (size_t i = 0; i < sizeof modes / sizeof *modes; ++i)
    if (judge(openat(tree, name_of(path), modes[i])) == kOpen) return kOpen;
  return kRefused;
}
static Outcome detached_clone(const char* path) {
  return in_detached((int)syscall(SYS_open_tree, AT_FDCWD, "/dev", OPEN_TREE_CLONE), path);
}
static Outcome detached_devtmpfs(const char* path) {
  const int context = (int)syscall(SYS_fsopen, "devtmpfs", 0);
  if (context < 0) return errno == ENODEV || errno == ENOSYS ? kAbsent : kRefused;
  if (syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) != 0) return kRefused;
  return in_detached((int)syscall(SYS_fsmount, context, 0, 0), path);
}

static Outcome chroot_dev(const char* path) {
  char node[512];
  snprintf(node, sizeof node, "/%s", name_of(path));
  if (chroot("/dev") != 0 || chdir("/") != 0) return kRefused;
  return try_every_mode(node);
}
static Outcome proc_self_root(const char* path) {
  char node[512];
  snprintf(node, sizeof node, "/proc/self/root%s", path);
  return try_every_mode(node);
}
// The process that the whole test runs in: outside every confinement and in other mounts.
static Outcome through_outside(const char* format, const char* path) {
  char name[512];
  const long pid = number_from("ESCAPE_OUTSIDE_PID");
  if (pid <= 0) return kBroken;
  snprintf(name, sizeof name, format, pid, path);
  return try_every_mode(name);
}
static Outcome outside_root(const char* path) { return through_outside("/proc/%ld/root%s", path); }
static Outcome setns_outside(const char* path) {
  char name[64];
  snprintf(name, sizeof name, "/proc/%ld/ns/mnt", number_from("ESCAPE_OUTSIDE_PID"));
  const int fd = open(name, O_RDONLY);
  if (fd < 0 || setns(fd, CLONE_NEWNS) != 0) return kRefused;
  return try_every_mode(path);
}

// A namespace whose last process leaves it ends, and its mounts are taken apart: a folder that was
// opened in it would show what lay below them.
static Outcome namespace_ends(const char* path) {
  const int folder = open("/dev", O_RDONLY | O_DIRECTORY);
  if (!user_namespace() || !private_mounts()) return kRefused;
  return in_detached(folder, path);
}
// The same with all of it thrown away but the folder.
static Outcome tree_dropped(const char* path) {
  if (!user_namespace() || !private_mounts()) return kRefused;
  const int folder = open("/dev", O_RDONLY | O_DIRECTORY);
  const char* top = new_folder("top");
  if (mount("tmpfs", top, "tmpfs", 0, NULL) != 0 || chdir(top) != 0) return kRefused;
  if (syscall(SYS_pivot_root, ".", ".") != 0 || umount2(".", MNT_DETACH) != 0) return kRefused;
  return in_detached(folder, path);
}
// The user namespace that owns our mounts, if it is another than ours: its maker has rights in it.
static Outcome mounts_owner(const char* path) {
  const int mounts = open("/proc/self/ns/mnt", O_RDONLY);
  const int owner = mounts < 0 ? -1 : ioctl(mounts, NS_GET_USERNS);
  if (owner < 0) return kRefused;
  setns(owner, CLONE_NEWUSER);  // fails where it is ours already
  umount2(path, MNT_DETACH);
  const char* folder = new_folder("owner");
  if (mount("/dev", folder, NULL, MS_BIND, NULL) == 0 && in_folder(folder, path) == kOpen)
    return kOpen;
  return try_every_mode(path);
}

const Way kMountWays[] = {
    {"mount_bind", mount_bind},
    {"userns_bind", userns_bind},
    {"userns_open", userns_open},
    {"mount_devtmpfs", mount_devtmpfs},
    {"mount_move", mount_move},
    {"detached_clone", detached_clone},
    {"detached_devtmpfs", detached_devtmpfs},
    {"chroot_dev", chroot_dev},
    {"proc_self_root", proc_self_root},
    {"outside_root", outside_root},
    {"setns_outside", setns_outside},
    {"namespace_ends", namespace_ends},
    {"tree_dropped", tree_dropped},
    {"mounts_owner", mounts_owner},
    {NULL, NULL},
};

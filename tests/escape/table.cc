// SPDX-License-Identifier: Apache-2.0
#include "table.h"

namespace corral::escape {
namespace {

constexpr std::size_t kRootColumns = 7;

constexpr Row kRows[] = {
    {"open_any", "open_any", Setup::none, "orrrrrr orrrrrrr",
     "open by its name: read, write, mode 3"},
    {"open_read", "open_read", Setup::none, "orrrrrr orrrrrrr", "open(2) for reading"},
    {"open_write", "open_write", Setup::none, "orrrrrr orrrrrrr", "open(2) for writing"},
    {"open_mode3", "open_mode3", Setup::none, "orrrrrr orrrrrrr", "open(2) in access mode 3"},
    {"openat_mode3", "openat_mode3", Setup::none, "orrrrrr orrrrrrr", "openat(2) in mode 3"},
    {"open_high_word", "open_high_word", Setup::none, "orrrrrr orrrrrrr",
     "mode 3 with bits above the 32 that the kernel reads"},
    {"openat2_read", "openat2_read", Setup::none, "orrrrrr orrrrrrr", "openat2(2) for reading"},
    {"openat2_mode3", "openat2_mode3", Setup::none, "orrrrrr orrrrrrr", "openat2(2) in mode 3"},
    {"io_uring_read", "io_uring_read", Setup::none, "orrrrrr orrrrrrr",
     "an io_uring request, for reading"},
    {"io_uring_mode3", "io_uring_mode3", Setup::none, "orrrrrr orrrrrrr",
     "an io_uring request, mode 3"},
    {"int80_mode3", "int80_mode3", Setup::none, "orrrrrr orrrrrrr",
     "the 32-bit entry from a 64-bit program"},
    {"x32_mode3", "x32_mode3", Setup::none, "------- --------", "an x32 system call"},
    {"program_32_read", "program_32_read", Setup::none, "orrrrrr orrrrrrr",
     "a 32-bit program, for reading"},
    {"program_32_mode3", "program_32_mode3", Setup::none, "orrrrrr orrrrrrr",
     "a 32-bit program, mode 3"},
    {"program_static", "program_static", Setup::none, "orrrrrr orrrrrrr", "a static program"},
    {"env_reset", "env_reset", Setup::none, "orrrrrr orrrrrrr",
     "a program started with an empty environment"},
    {"opath_reopen", "opath_reopen", Setup::none, "orrrrrr orrrrrrr", "O_PATH, then /proc/self/fd"},
    {"opath_reopen_mode3", "opath_reopen_mode3", Setup::none, "orrrrrr orrrrrrr",
     "the same in mode 3"},
    {"symlink", "symlink", Setup::none, "orrrrrr orrrrrrr", "a symbolic link in /tmp"},
    {"dot_dot", "dot_dot", Setup::none, "orrrrrr orrrrrrr", "a path through /proc/self/cwd and .."},
    {"race_symlink", "race_symlink", Setup::none, "orrrrrr orrrrrrr",
     "a symbolic link exchanged all the time"},
    {"hard_link", "hard_link", Setup::none, "orrrr-- rrrrrr--", "a hard link beside the node"},
    {"rename_node", "rename_node", Setup::none, "orrrrrr rrrrrrrr", "the node renamed"},
    {"rename_across", "rename_across", Setup::none, "rrrrrrr rrrrrrrr",
     "the node moved to another file system"},
    {"mknod_tmp", "mknod_tmp", Setup::none, "orrrrrr rrrrrrrr", "a new node in /tmp"},
    {"mknod_shm", "mknod_shm", Setup::none, "orrrrrr rrrrrrrr", "a new node in /dev/shm"},
    {"mknod_dev", "mknod_dev", Setup::none, "orrrrrr rrrrrrrr", "a new node in /dev"},
    {"make_again", "make_again", Setup::none, "orrrrrr rrrrrrrr",
     "the node removed and made again"},
    {"handle_read", "handle_read", Setup::none, "orrrrrr rrrrrrrr",
     "open_by_handle_at(2) for reading"},
    {"handle_mode3", "handle_mode3", Setup::none, "orrrrrr rrrrrrrr",
     "open_by_handle_at(2) in mode 3"},
    {"mount_bind", "mount_bind", Setup::none, "orrrrrr rrrrrrrr", "/dev bound to /tmp"},
    {"userns_bind", "userns_bind", Setup::none, "orrrrrr orrrrrrr", "the same in a user namespace"},
    {"userns_open", "userns_open", Setup::none, "orrrrrr orrrrrrr", "open in a user namespace"},
    {"mount_devtmpfs", "mount_devtmpfs", Setup::none, "orrrrrr rrrrrrrr", "a fresh devtmpfs"},
    {"mount_move", "mount_move", Setup::none, "orrrrrr rrrrrrrr", "/dev moved"},
    {"detached_clone", "detached_clone", Setup::none, "orrrrrr rrrrrrrr",
     "a detached clone of /dev"},
    {"detached_devtmpfs", "detached_devtmpfs", Setup::none, "orrrrrr rrrrrrrr",
     "a detached fresh devtmpfs"},
    {"chroot_dev", "chroot_dev", Setup::none, "orrrrrr rrrrrrrr", "chroot(2) into /dev"},
    {"proc_self_root", "proc_self_root", Setup::none, "orrrrrr orrrrrrr", "/proc/self/root"},
    {"outside_root", "outside_root", Setup::none, "orrrrrr rrrrrrrr",
     "/proc/PID/root of a process outside"},
    {"setns_outside", "setns_outside", Setup::none, "orrrrrr rrrrrrrr",
     "the mount namespace of a process outside"},
    {"namespace_ends", "namespace_ends", Setup::none, "orrrrrr orrrrrrr",
     "/dev kept open while its mount namespace ends"},
    {"tree_dropped", "tree_dropped", Setup::none, "orrrrrr orrrrrrr",
     "/dev kept open while all mounts are thrown away"},
    {"mounts_owner", "mounts_owner", Setup::none, "orrrrrr orrrrrrr",
     "the user namespace that owns the mounts"},
    {"cg2_leave", "cg2_leave", Setup::none, "ororrrr rrrrrrrr",
     "a write to cgroup.procs above (v2)"},
    {"cg1_leave", "cg1_leave", Setup::none, "orrorrr rrrrrrrr", "the same (v1)"},
    {"leave_then_mknod", "leave_then_mknod", Setup::none, "oroorrr rrrrrrrr",
     "leave, then make a node"},
    {"userns_then_leave", "userns_then_leave", Setup::none, "oroorrr rrrrrrrr",
     "a user namespace, then leave"},
    {"cgroupns_then_leave", "cgroupns_then_leave", Setup::none, "oroorrr rrrrrrrr",
     "a cgroup namespace, then leave"},
    {"cg2_newmount", "cg2_newmount", Setup::none, "ororrrr rrrrrrrr",
     "a new cgroup2 mount, then leave"},
    {"cg1_newmount", "cg1_newmount", Setup::none, "orrorrr rrrrrrrr", "a new v1 mount, then leave"},
    {"cg2_fsmount", "cg2_fsmount", Setup::none, "ororrrr rrrrrrrr",
     "a detached cgroup2 mount, then leave"},
    {"cg2_clone_into", "cg2_clone_into", Setup::none, "ororrrr rrrrrrrr",
     "clone3(2) into the group above"},
    {"cg2_bpf_detach", "cg2_bpf_detach", Setup::none, "ororrrr rrrrrrrr",
     "take the device program off"},
    {"cg2_child", "cg2_child", Setup::none, "orrrrrr rrrrrrrr", "a group below"},
    {"cg1_allow", "cg1_allow", Setup::none, "orrorrr rrrrrrrr", "devices.allow"},
    {"ptrace_helper", "ptrace_helper", Setup::helper, "orrrrrr orrrrrrr",
     "trace a process of the same user outside"},
    {"ptrace_parent", "ptrace_parent", Setup::none, "orrrrrr rrrrrrrr", "trace corral itself"},
    {"vm_writev", "vm_writev", Setup::helper, "orrrrrr orrrrrrr", "write to its memory"},
    {"proc_mem", "proc_mem", Setup::helper, "orrrrrr orrrrrrr", "/proc/PID/mem"},
    {"pidfd_getfd", "pidfd_getfd", Setup::helper, "orrrrrr orrrrrrr", "take its descriptor"},
    {"proc_pid_fd", "proc_pid_fd", Setup::helper, "orrrrrr orrrrrrr", "/proc/PID/fd"},
    {"proc_pid_root", "proc_pid_root", Setup::helper, "orrrrrr orrrrrrr", "/proc/PID/root"},
    {"inherit_fd", "inherit_fd", Setup::inherit_fd, "orrrrrr orrrrrrr", "the node, inherited open"},
    {"inherit_stdin", "inherit_stdin", Setup::inherit_stdin, "orrrrrr orrrrrrr",
     "the node as standard input"},
    {"inherit_opath", "inherit_opath", Setup::inherit_opath, "orrrrrr orrrrrrr",
     "an O_PATH descriptor of the node, inherited"},
    {"inherit_dirfd", "inherit_dirfd", Setup::inherit_folder, "orrrrrr orrrrrrr",
     "/dev, inherited open"},
    {"inherit_cwd", "inherit_cwd", Setup::inherit_cwd, "orrrrrr orrrrrrr",
     "/dev as working folder"},
    {"inherit_ring", "inherit_ring", Setup::inherit_ring, "orrrrrr orrrrrrr",
     "an io_uring, inherited"},
    {"inherit_pidfd", "inherit_pidfd", Setup::inherit_pidfd, "orrrrrr orrrrrrr",
     "a pidfd of a process outside, inherited"},
    {"inherit_cgprocs", "inherit_cgprocs", Setup::inherit_procs, "orrrrrr orrrrrrr",
     "cgroup.procs, inherited open"},
    {"inherit_mntns", "inherit_mntns", Setup::inherit_mount_namespace, "orrrrrr rrrrrrrr",
     "a mount namespace, inherited"},
    {"scm_rights", "scm_rights", Setup::socket, "ooooooo oooooooo",
     "**a descriptor sent through a socket: outside the promise**"},
    {"setuid_program", "setuid_program", Setup::none, "oroorrr oroorrrr",
     "**a setuid program of root's that leaves for us: outside the promise where no_new_privs is "
     "not set**"},
    {"daemon", "daemon", Setup::none, "orrrrrr orrrrrrr", "a daemon of its own session"},
    {"made_again_outside", "made_again_outside", Setup::made_again, "orrrror orrrrror",
     "the node removed and made again outside"},
    {"become_root", "become_root", Setup::none, "orrrrrr rrrrrrrr", "setresuid(2) to root"},
    {"alias_bind", "open_any", Setup::alias_bind, "orrrrrr orrrrrrr", "/dev mounted a second time"},
    {"alias_node", "open_any", Setup::alias_node, "orrrrrr orrrrrrr",
     "a second node of the number"},
    {"alias_in_tmp", "open_any", Setup::alias_in_tmp, "oorrrrr oorrxrrr",
     "a second node below /tmp"},
};

}  // namespace

std::span<const Row> rows() { return kRows; }

const std::vector<Column>& columns() {
  static const std::vector<Column> all = {
      {.name = "none", .person = "root"},
      {.name = "Landlock", .person = "root", .landlock = true},
      {.name = "cgroup v2", .person = "root", .cgroup2 = true},
      {.name = "cgroup v1", .person = "root", .cgroup1 = true},
      {.name = "tight", .person = "root", .tight = true},
      {.name = "mount", .person = "root", .mount = true},
      {.name = "mount and Landlock", .person = "root", .landlock = true, .mount = true},
      {.name = "none", .person = "user", .user = true},
      {.name = "Landlock", .person = "user", .landlock = true, .user = true, .by_user = true},
      {.name = "cgroup v2", .person = "user of root", .cgroup2 = true, .user = true},
      {.name = "cgroup v1", .person = "user of root", .cgroup1 = true, .user = true},
      {.name = "tight", .person = "user", .tight = true, .user = true, .by_user = true},
      {.name = "tight", .person = "user of root", .tight = true, .user = true},
      {.name = "mount", .person = "user", .mount = true, .user = true, .by_user = true},
      {.name = "mount and Landlock",
       .person = "user",
       .landlock = true,
       .mount = true,
       .user = true,
       .by_user = true},
  };
  return all;
}

namespace {

std::string cell(const Row& row, std::size_t column) {
  // What fails without any confinement proves nothing about one.
  const std::size_t unconfined = column < kRootColumns ? 0 : kRootColumns;
  if (expected(row, unconfined) != 'o') return "·";
  switch (expected(row, column)) {
    case 'o':
      return "**open**";
    case 'x':
      return "no start";
    case '-':
      return "·";
    default:
      return "refused";
  }
}

}  // namespace

char expected(const Row& row, std::size_t column) {
  return row.expected[column < kRootColumns ? column : column + 1];
}

std::string markdown() {
  std::string head = "| way | what it is |";
  std::string line = "| --- | --- |";
  for (const Column& column : columns()) {
    head += " " + column.name + ", " + column.person + " |";
    line += " --- |";
  }
  std::string text = head + "\n" + line + "\n";
  for (const Row& row : rows()) {
    text += std::string("| `") + row.name + "` | " + row.meaning + " |";
    for (std::size_t i = 0; i < columns().size(); ++i) text += " " + cell(row, i) + " |";
    text += "\n";
  }
  return text;
}

}  // namespace corral::escape

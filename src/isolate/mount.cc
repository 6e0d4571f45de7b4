// SPDX-License-Identifier: Apache-2.0
#include "isolate/mount.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/fd.h"
#include "base/file.h"
#include "base/text.h"
#include "isolate/inherited.h"

namespace corral::isolate {
namespace {

constexpr const char* kCover = "/dev/null";
constexpr std::string_view kModifyKey = "ModifyDeviceFiles:";

// A capability that undoes a cover or goes round it. From the kernel's list of numbers.
constexpr unsigned kDropped[] = {CAP_SYS_ADMIN,  // umount, setns, new mounts
                                 CAP_MKNOD,
                                 CAP_DAC_READ_SEARCH,  // open_by_handle_at finds the covered inode
                                 CAP_SYS_PTRACE,       // /proc/PID/root of a process outside
                                 CAP_SYS_MODULE,      CAP_SYS_RAWIO, CAP_SYS_BOOT};

Result<void> enter_user_namespace(uid_t user, gid_t group) {
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
    return fail_sys("make a user and mount namespace", errno);
  // A process that changed its user, or whose program may not be read, has files in /proc that are
  // root's. It has no rights outside any more, so whoever traces it gains none.
  if (::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0) return fail_sys("become dumpable", errno);
  // Without this the kernel takes no map of groups from an ordinary user.
  CORRAL_CHECK(write_existing("/proc/self/setgroups", "deny"));
  CORRAL_CHECK(write_existing("/proc/self/uid_map", fmt::format("{0} {0} 1\n", user)));
  return write_existing("/proc/self/gid_map", fmt::format("{0} {0} 1\n", group));
}

Result<void> mount_step(const char* source, const std::string& target, const char* type,
                        unsigned long flags, const char* what) {
  if (::mount(source, target.c_str(), type, flags, nullptr) != 0)
    return fail_sys(std::string(what) + " " + target, errno);
  return {};
}

Result<void> check_cover() {
  struct stat status{};
  if (::stat(kCover, &status) != 0) return fail_sys(kCover, errno);
  if (!is_cover(status))
    return fail("/dev/null is not the device 1:3 here, so it cannot cover another node");
  return {};
}

// A file system of our own gives the file its place; it goes out of sight at once, and the bound
// file keeps it alive. /dev is certain to be there, and nothing that we look at meanwhile is in it.
Result<void> show_params(const std::string& path) {
  CORRAL_TRY(const std::string params, read_file(path));
  CORRAL_CHECK(mount_step("corral", "/dev", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
                          "mount a file system on"));
  CORRAL_CHECK(write_file("/dev/params", without_device_files(params), 0444));
  CORRAL_CHECK(mount_step("/dev/params", path, nullptr, MS_BIND, "lay a file over"));
  if (::umount2("/dev", MNT_DETACH) != 0) return fail_sys("unmount our file system", errno);
  return {};
}

// Holds a copy of our mounts, which a user namespace owns, until the other end is closed.
[[noreturn]] void hold_copy(const Fd& end) {
  int error = 0;
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 || ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0)
    error = errno;
  char byte = 0;
  if (::write(end.get(), &error, sizeof error) == ssize_t{sizeof error})
    (void)!::read(end.get(), &byte, 1);
  ::_exit(0);
}

// Moves this process, which keeps its user namespace and its rights, into the mounts of another.
Result<void> enter_mounts_of(pid_t pid) {
  CORRAL_TRY(const WorkingFolder folder, working_folder());
  CORRAL_TRY(const Fd mounts, open_file(fmt::format("/proc/{}/ns/mnt", pid), O_RDONLY));
  if (::setns(mounts.get(), CLONE_NEWNS) != 0) return fail_sys("enter a mount namespace", errno);
  return enter_again(folder);
}

// When a mount namespace ends, the kernel takes its mounts apart, and a folder that was opened in
// it shows what lay below the covers: a job that is alone in it needs no right to make it end, it
// enters a user namespace of its own. Mounts that were copied for a user namespace are locked
// together for good.
Result<void> lock_covers() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_sys("socketpair", errno);
  Fd ours(ends[0]);
  Fd theirs(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0)
    return fail_sys("fork, to lock the covers", errno,
                    "a limit of processes must leave room for one more at the start");
  if (pid == 0) {
    ours.close();
    hold_copy(theirs);
  }
  theirs.close();
  int error = EPIPE;
  ssize_t n = 0;
  do n = ::read(ours.get(), &error, sizeof error);
  while (n < 0 && errno == EINTR);
  Result<void> entered;
  // EINVAL: a kernel without user namespaces, where the job, who may not unshare, has none to
  // enter.
  if (error == 0)
    entered = enter_mounts_of(pid);
  else if (error != EINVAL)
    entered = fail_sys("make a user and mount namespace, to lock the covers", error);
  ours.close();
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return entered;
}

Result<std::uint64_t> own_capabilities() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3]{};
  if (::syscall(SYS_capget, &header, data) != 0) return fail_sys("read the capabilities", errno);
  return std::uint64_t{data[1].permitted} << 32 | data[0].permitted;
}

Result<void> set_capabilities(std::uint64_t kept) {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3]{};
  for (unsigned word = 0; word < _LINUX_CAPABILITY_U32S_3; ++word)
    data[word].permitted = data[word].effective = static_cast<std::uint32_t>(kept >> (32 * word));
  if (::syscall(SYS_capset, &header, data) != 0) return fail_sys("give up capabilities", errno);
  return {};
}

std::optional<long> setting(const host::Root& root, const std::string& path) {
  const auto text = read_file(root.path(path));
  if (!text) return std::nullopt;
  return parse_number<long>(trim(*text));
}

// What a child says of itself: errno, then words.
std::string encode(const Error& error) {
  std::string text(reinterpret_cast<const char*>(&error.sys), sizeof error.sys);
  return text + error.what;
}

Result<void> decode(const std::string& text) {
  if (text.size() < sizeof(int)) return {};
  int sys = 0;
  std::memcpy(&sys, text.data(), sizeof sys);
  return fail(text.substr(sizeof sys), "", sys);
}

}  // namespace

bool is_cover(const struct stat& status) {
  return S_ISCHR(status.st_mode) && status.st_rdev == makedev(1, 3);
}

std::string without_device_files(std::string_view params) {
  std::string shown;
  for (const std::string_view line : split(params, '\n')) {
    if (line.empty()) continue;
    if (line.starts_with(kModifyKey))
      shown += fmt::format("{} 0\n", kModifyKey);
    else
      shown += fmt::format("{}\n", line);
  }
  return shown;
}

Result<void> enter_covered_mounts(const MountCover& cover) {
  const uid_t user = ::geteuid();
  const gid_t group = ::getegid();
  CORRAL_CHECK(check_cover());
  if (cover.user_namespaces) {
    CORRAL_CHECK(enter_user_namespace(user, group));
  } else if (::unshare(CLONE_NEWNS) != 0) {
    return fail_sys("make a mount namespace", errno);
  }
  CORRAL_CHECK(
      mount_step(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, "make private the mounts of"));
  if (!cover.driver_params.empty()) CORRAL_CHECK(show_params(cover.driver_params));
  for (const std::string& node : cover.nodes)
    CORRAL_CHECK(mount_step(kCover, node, nullptr, MS_BIND, "lay /dev/null over"));
  // What a namespace above made cannot be taken apart from below: the covers are locked.
  return cover.user_namespaces ? enter_user_namespace(user, group) : lock_covers();
}

Result<void> drop_mount_rights() {
  CORRAL_TRY(std::uint64_t kept, own_capabilities());
  for (const unsigned capability : kDropped) {
    // Out of the bounding set no exec, not even of root's, brings it back.
    if (::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0)
      return fail_sys("give up a capability for good", errno);
    kept &= ~(std::uint64_t{1} << capability);
  }
  // The inheritable set goes too, and with it the ambient one.
  return set_capabilities(kept);
}

NamespaceSettings read_namespace_settings(const host::Root& root) {
  NamespaceSettings settings{
      .max_user_namespaces = setting(root, "/proc/sys/user/max_user_namespaces"),
      .unprivileged_clone = setting(root, "/proc/sys/kernel/unprivileged_userns_clone"),
      .apparmor_restriction =
          setting(root, "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
  };
  if (const auto status = read_file(root.path("/proc/self/status")))
    settings.filtered = status->find("\nSeccomp:\t2") != std::string::npos;
  return settings;
}

Error explain_mount_trouble(const Error& error, const NamespaceSettings& settings,
                            bool user_namespaces) {
  // Root's covers are locked by a user namespace, and the kernel asks for no right to make one.
  if ((user_namespaces || error.sys == ENOSPC) && settings.max_user_namespaces == 0)
    return {"user namespaces are switched off (user.max_user_namespaces is 0)",
            "as root: sysctl user.max_user_namespaces=10000", error.sys};
  if (user_namespaces && settings.unprivileged_clone == 0)
    return {"user namespaces are for root only (kernel.unprivileged_userns_clone is 0)",
            "as root: sysctl kernel.unprivileged_userns_clone=1", error.sys};
  const bool refused = error.sys == EPERM || error.sys == EACCES;
  if (user_namespaces && refused && settings.apparmor_restriction.value_or(0) != 0)
    return {
        "AppArmor takes the rights from user namespaces of programs without a profile "
        "(kernel.apparmor_restrict_unprivileged_userns is 1, the default of Ubuntu 23.10 and "
        "later)",
        "as root: an AppArmor profile for corral that holds \"userns,\", or sysctl "
        "kernel.apparmor_restrict_unprivileged_userns=0",
        error.sys};
  if (error.sys == ENOSPC)
    return {"no further user namespace may be made: " + error.what +
                " (user.max_user_namespaces, or 32 of them nested)",
            "", error.sys};
  if ((refused || error.sys == ENOSYS) && settings.filtered)
    return {error.what +
                ": a seccomp filter is on this process, as in most containers and in "
                "another corral run with Landlock",
            "in a container: start it with a seccomp profile that allows unshare and mount; in a "
            "corral run: add mount to the outer one, for nothing can be mounted under Landlock",
            error.sys};
  if (refused)
    return {error.what +
                ": a chroot, an outer confinement (Landlock) or a security module "
                "refuses it" +
                (user_namespaces ? "" : ", or CAP_SYS_CHROOT or CAP_SETPCAP is missing"),
            "", error.sys};
  return error;
}

Result<void> try_covered_mounts(bool user_namespaces) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_sys("pipe", errno);
  Fd reader(ends[0]);
  Fd writer(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return fail_sys("fork", errno);
  if (pid == 0) {
    // Whether the working folder can be entered again is not the question here.
    (void)!::chdir("/");
    Result<void> done = enter_covered_mounts(
        {.nodes = {}, .driver_params = {}, .user_namespaces = user_namespaces});
    if (done && !user_namespaces) done = drop_mount_rights();
    if (!done) (void)write_all(writer.get(), encode(done.error()));
    ::_exit(0);
  }
  writer.close();
  char buffer[4096];  // one write of the child's, and atomic
  ssize_t length = 0;
  do length = ::read(reader.get(), buffer, sizeof buffer);
  while (length < 0 && errno == EINTR);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status)) return fail("the attempt was ended by a signal");
  return decode(std::string(buffer, static_cast<std::size_t>(std::max<ssize_t>(length, 0))));
}

}  // namespace corral::isolate

// SPDX-License-Identifier: Apache-2.0
#include "isolate/inherited.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/file.h"
#include "base/text.h"
#include "isolate/kernel_defs.h"

namespace corral::isolate {
namespace {

bool is_refused(const struct stat& status, std::span<const RefusedNode> refused) {
  return std::ranges::any_of(refused, [&](const RefusedNode& r) {
    const bool number =
        r.node.major == major(status.st_rdev) && r.node.minor == minor(status.st_rdev);
    switch (r.node.type) {
      case Node::Type::block:
        return S_ISBLK(status.st_mode) && number;
      case Node::Type::character:
      case Node::Type::covered:
      case Node::Type::missing:
        return S_ISCHR(status.st_mode) && number && r.node.major != 0;
      case Node::Type::file: {
        struct stat file{};
        return S_ISREG(status.st_mode) && ::stat(r.node.path.c_str(), &file) == 0 &&
               file.st_dev == status.st_dev && file.st_ino == status.st_ino;
      }
    }
    return false;
  });
}

// What /proc/self/fd/N points at: "anon_inode:[io_uring]".
std::string link_text(int fd) {
  char target[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = ::readlink(link.c_str(), target, sizeof target);
  return length < 0 ? std::string() : std::string(target, static_cast<std::size_t>(length));
}

bool closes_always(std::string_view link, long file_system) {
  return file_system == CGROUP_SUPER_MAGIC || file_system == CGROUP2_SUPER_MAGIC ||
         file_system == PIDFS_MAGIC || file_system == BPF_FS_MAGIC ||
         link.starts_with("anon_inode:[io_uring]") || link.starts_with("anon_inode:[pidfd]") ||
         link.starts_with("anon_inode:bpf") || link.starts_with("anon_inode:[bpf");
}

bool closes_when_thorough(std::string_view link, long file_system, const struct stat& status,
                          int status_flags) {
  return S_ISDIR(status.st_mode) || (status_flags & O_PATH) != 0 || file_system == NSFS_MAGIC ||
         file_system == PROC_SUPER_MAGIC || link.starts_with("anon_inode:[fscontext]") ||
         link.starts_with("anon_inode:[fanotify]") || link.starts_with("anon_inode:[userfaultfd]");
}

bool must_close(int fd, std::span<const RefusedNode> refused, bool thorough) {
  struct stat status{};
  struct statfs file_system{};
  // What cannot be looked at is not passed on.
  if (::fstat(fd, &status) != 0 || ::fstatfs(fd, &file_system) != 0) return errno != EBADF;
  if (is_refused(status, refused)) return true;
  const std::string link = link_text(fd);
  if (closes_always(link, file_system.f_type)) return true;
  return thorough && closes_when_thorough(link, file_system.f_type, status, ::fcntl(fd, F_GETFL));
}

Result<std::vector<int>> open_descriptors() {
  std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir("/proc/self/fd"), ::closedir);
  if (!dir) return fail_sys("open /proc/self/fd", errno, "corral needs /proc to be mounted");
  std::vector<int> fds;
  while (const dirent* entry = ::readdir(dir.get()))
    if (const auto fd = parse_number<int>(entry->d_name); fd && *fd != ::dirfd(dir.get()))
      fds.push_back(*fd);
  return fds;
}

// What a standard stream gets in place of what is closed.
Result<Fd> harmless_stream(std::span<const RefusedNode> refused) {
  struct stat status{};
  if (::stat("/dev/null", &status) != 0 || !is_refused(status, refused))
    return open_file("/dev/null", O_RDWR);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_sys("pipe", errno);
  const Fd writer(ends[1]);
  return Fd(ends[0]);
}

}  // namespace

Result<void> close_inherited(std::span<const RefusedNode> refused, bool thorough) {
  CORRAL_TRY(const std::vector<int> fds, open_descriptors());
  for (const int fd : fds) {
    if ((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0 || !must_close(fd, refused, thorough)) continue;
    if (fd > STDERR_FILENO) {
      ::close(fd);
      continue;
    }
    CORRAL_TRY(const Fd stream, harmless_stream(refused));
    if (::dup2(stream.get(), fd) < 0) return fail_sys("replace a standard stream", errno);
  }
  return {};
}

Result<WorkingFolder> working_folder() {
  char path[PATH_MAX];
  struct stat status{};
  if (::getcwd(path, sizeof path) == nullptr || ::stat(".", &status) != 0)
    return fail_sys("working folder", errno, "start the job from a folder that exists");
  return WorkingFolder{.path = path, .device = status.st_dev, .inode = status.st_ino};
}

Result<void> enter_again(const WorkingFolder& folder) {
  // The kernel's text for a folder above which nobody can go has no slash in front.
  if (!folder.path.starts_with('/') || ::chdir(folder.path.c_str()) != 0)
    return fail_sys("working folder " + folder.path, folder.path.starts_with('/') ? errno : ENOENT,
                    "this confinement needs a working folder that can be reached by its path");
  struct stat status{};
  if (::stat(".", &status) != 0) return fail_sys("working folder " + folder.path, errno);
  if (status.st_dev != folder.device || status.st_ino != folder.inode)
    return fail("working folder " + folder.path + ": another folder lies over it",
                "start the job from a folder that can be reached by its path");
  return {};
}

}  // namespace corral::isolate

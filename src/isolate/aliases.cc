// SPDX-License-Identifier: Apache-2.0
#include "isolate/aliases.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>

namespace corral::isolate {
namespace {

// A start must stay within milliseconds: about 10 µs a folder and 0.3 µs an entry.
struct Bounds {
  std::size_t folders = 0;
  std::size_t entries = 0;
  unsigned depth = 0;
};
constexpr Bounds kDevBounds{.folders = 2'000, .entries = 100'000, .depth = 16};
constexpr Bounds kElsewhereBounds{.folders = 150, .entries = 4'000, .depth = 4};

// Kernel file systems without nodes of ours, and those where a look may hang.
constexpr std::string_view kSkippedTypes[] = {
    "proc",      "sysfs",      "cgroup",  "cgroup2",     "devpts",    "debugfs",
    "tracefs",   "securityfs", "bpf",     "pstore",      "configfs",  "mqueue",
    "nsfs",      "autofs",     "nfs",     "nfs4",        "cifs",      "smb3",
    "ceph",      "lustre",     "gpfs",    "beegfs",      "glusterfs", "9p",
    "hugetlbfs", "efivarfs",   "fusectl", "binfmt_misc", "rpc_pipefs"};

struct Folder {
  std::string path;
  dev_t device = 0;
  unsigned depth = 0;
};

class Search {
 public:
  Search(std::span<const Node> nodes, SecondNodes& found) : nodes_(nodes), found_(found) {}

  void start(const std::string& path) {
    struct stat status{};
    if (::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode))
      queue_.push_back({.path = path, .device = status.st_dev, .depth = 0});
  }

  // False when a bound was hit.
  bool run(const Bounds& bounds) {
    bounds_ = bounds;
    entries_ = 0;
    complete_ = true;
    for (std::size_t folders = 0; !queue_.empty(); ++folders) {
      if (folders == bounds.folders || entries_ > bounds.entries) {
        queue_.clear();
        return false;
      }
      const Folder folder = std::move(queue_.front());
      queue_.pop_front();
      list(folder);
    }
    return complete_;
  }

 private:
  void list(const Folder& folder) {
    std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(folder.path.c_str()), ::closedir);
    if (!dir) {
      complete_ = false;
      return;
    }
    const int fd = ::dirfd(dir.get());
    struct stat own{};
    // Mounts are searched by themselves.
    if (fd < 0 || ::fstat(fd, &own) != 0 || own.st_dev != folder.device) return;
    while (const dirent* entry = ::readdir(dir.get())) {
      if (++entries_ > bounds_.entries) {
        complete_ = false;
        return;
      }
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      const std::string path = (folder.path == "/" ? "" : folder.path) + "/" + entry->d_name;
      bool is_folder = entry->d_type == DT_DIR;
      if (entry->d_type == DT_CHR || entry->d_type == DT_BLK || entry->d_type == DT_UNKNOWN) {
        struct stat status{};
        if (::fstatat(fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
        is_folder = S_ISDIR(status.st_mode);
        note(path, status);
      }
      if (!is_folder) continue;
      if (folder.depth == bounds_.depth)
        complete_ = false;
      else
        later({.path = path, .device = folder.device, .depth = folder.depth + 1}, name);
    }
  }

  void later(Folder folder, std::string_view name) {
    // Where chroots and containers keep their nodes.
    if (name == "dev")
      queue_.push_front(std::move(folder));
    else
      queue_.push_back(std::move(folder));
  }

  void note(const std::string& path, const struct stat& status) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      const bool same_type =
          node.type == Node::Type::block ? S_ISBLK(status.st_mode) : S_ISCHR(status.st_mode);
      if (node.type == Node::Type::file || !same_type || node.major == 0 ||
          node.major != major(status.st_rdev) || node.minor != minor(status.st_rdev) ||
          node.path == path)
        continue;
      if (std::ranges::find(found_.paths[i], path) == found_.paths[i].end())
        found_.paths[i].push_back(path);
    }
  }

  std::span<const Node> nodes_;
  SecondNodes& found_;
  std::deque<Folder> queue_;
  Bounds bounds_{};
  std::size_t entries_ = 0;
  bool complete_ = true;
};

bool is_searched(const host::Mount& mount) {
  return !mount.has_option("nodev") && !mount.type.starts_with("fuse") &&
         std::ranges::find(kSkippedTypes, mount.type) == std::end(kSkippedTypes) &&
         mount.point != "/dev" && !mount.point.starts_with("/dev/");
}

std::optional<unsigned> mount_id_of(const std::string& path) {
  struct statx status{};
  if (::statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, STATX_MNT_ID, &status) != 0 ||
      (status.stx_mask & STATX_MNT_ID) == 0)
    return std::nullopt;
  return static_cast<unsigned>(status.stx_mnt_id);
}

bool is_within(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

bool is_shared(const std::string& folder) {
  struct stat status{};
  if (::stat(folder.c_str(), &status) != 0) return false;
  if ((status.st_mode & S_IWOTH) != 0) return true;
  if (::geteuid() != 0 && ::access(folder.c_str(), W_OK) == 0) return true;
  char cwd[PATH_MAX];
  if (::getcwd(cwd, sizeof cwd) != nullptr && is_within(cwd, folder)) return true;
  const char* home = std::getenv("HOME");
  return home != nullptr && is_within(home, folder);
}

}  // namespace

std::vector<std::string> mount_names(const std::string& path,
                                     const std::vector<host::Mount>& mounts) {
  struct stat own{};
  const auto id = mount_id_of(path);
  if (!id || ::lstat(path.c_str(), &own) != 0) return {};
  std::vector<std::string> names = host::other_names(mounts, *id, path);
  std::erase_if(names, [&](const std::string& name) {
    struct stat other{};
    return ::lstat(name.c_str(), &other) != 0 || other.st_dev != own.st_dev ||
           other.st_ino != own.st_ino;
  });
  return names;
}

SecondNodes find_second_nodes(std::span<const Node> nodes, const std::vector<host::Mount>& mounts) {
  SecondNodes found;
  found.paths.resize(nodes.size());
  Search search(nodes, found);
  search.start("/dev");
  for (const host::Mount& mount : mounts)
    if (mount.point.starts_with("/dev/") && mount.type != "devpts" && mount.type != "mqueue" &&
        mount.type != "hugetlbfs")
      search.start(mount.point);
  const bool dev_complete = search.run(kDevBounds);
  for (const host::Mount& mount : mounts)
    if (is_searched(mount)) search.start(mount.point);
  found.complete = search.run(kElsewhereBounds) && dev_complete;
  return found;
}

std::string shared_folder_above(const std::string& path) {
  for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    const std::string folder = path.substr(0, at);
    if (folder != "/dev" && is_shared(folder)) return folder;
  }
  return {};
}

}  // namespace corral::isolate

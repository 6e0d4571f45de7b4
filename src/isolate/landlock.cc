// SPDX-License-Identifier: Apache-2.0
#include "isolate/landlock.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>
#include <utility>

#include "base/file.h"
#include "isolate/kernel_defs.h"

namespace corral::isolate {
namespace {

using Identity = std::pair<dev_t, ino_t>;

// More than any /dev holds; a folder beyond it is not one to pass rule by rule.
constexpr std::size_t kMaxGrants = 20'000;

Identity identity(const struct stat& status) { return {status.st_dev, status.st_ino}; }

bool is_device(mode_t mode) { return S_ISCHR(mode) || S_ISBLK(mode); }

std::string child_path(const std::string& folder, std::string_view name) {
  std::string path = folder == "/" ? "" : folder;
  path += '/';
  path += name;
  return path;
}

class Walk {
 public:
  explicit Walk(const LandlockRules& rules) : rules_(rules) {
    for (const std::string& path : rules.refused) withhold(path, refused_);
    for (const std::string& path : rules.read_only) withhold(path, read_only_);
  }

  Result<std::vector<Grant>> run() {
    CORRAL_CHECK(list(rules_.top));
    return std::move(grants_);
  }

 private:
  // Notes the inode at `path` and those of all folders above it.
  void withhold(const std::string& path, std::set<Identity>& set) {
    struct stat status{};
    if (::lstat(path.c_str(), &status) == 0) {
      set.insert(identity(status));
      if (is_device(status.st_mode) && &set == &refused_)
        numbers_.insert({status.st_mode & S_IFMT, status.st_rdev});
    }
    for (std::size_t at = path.rfind('/'); at != std::string::npos;
         at = at == 0 ? std::string::npos : path.rfind('/', at - 1)) {
      const std::string folder = at == 0 ? "/" : path.substr(0, at);
      if (::lstat(folder.c_str(), &status) == 0) ancestors_.insert(identity(status));
    }
  }

  Result<void> list(const std::string& folder) {
    std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(folder.c_str()), ::closedir);
    if (!dir)
      return fail_sys("open folder " + folder, errno,
                      "Landlock must list every folder above a refused node");
    while (const dirent* entry = ::readdir(dir.get())) {
      const std::string_view name = entry->d_name;
      if (name == "." || name == ".." || entry->d_type == DT_LNK || entry->d_type == DT_SOCK)
        continue;
      CORRAL_CHECK(visit(child_path(folder, name)));
    }
    return {};
  }

  Result<void> visit(const std::string& path) {
    struct stat status{};
    // Gone, or hidden from us: not granted is the safe side.
    if (::lstat(path.c_str(), &status) != 0) return {};
    if (S_ISLNK(status.st_mode) || S_ISSOCK(status.st_mode)) return {};
    const Identity id = identity(status);
    if (refused_.contains(id)) return {};
    if (is_device(status.st_mode) && numbers_.contains({status.st_mode & S_IFMT, status.st_rdev}))
      return {};
    if (ancestors_.contains(id)) return list(path);
    if (grants_.size() == kMaxGrants)
      return fail("Landlock: more than " + std::to_string(kMaxGrants) +
                  " files beside the refused nodes, the last one " + path);
    grants_.push_back(
        {.path = path, .folder = S_ISDIR(status.st_mode), .read_only = read_only_.contains(id)});
    return {};
  }

  const LandlockRules& rules_;
  std::set<Identity> refused_;
  std::set<Identity> read_only_;
  std::set<Identity> ancestors_;
  std::set<std::pair<mode_t, dev_t>> numbers_;
  std::vector<Grant> grants_;
};

Result<Fd> create_ruleset(LandlockRulesetAttr attr, std::size_t size) {
  Fd fd(static_cast<int>(::syscall(SYS_landlock_create_ruleset, &attr, size, 0U)));
  if (!fd) return fail_sys("landlock_create_ruleset", errno);
  return fd;
}

std::uint64_t granted_rights(const Grant& grant, unsigned abi) {
  if (grant.read_only) return LANDLOCK_ACCESS_FS_READ_FILE;
  std::uint64_t rights = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE;
  if (abi >= 5) rights |= LANDLOCK_ACCESS_FS_IOCTL_DEV;
  if (abi >= 2 && grant.folder) rights |= LANDLOCK_ACCESS_FS_REFER;
  return rights;
}

Result<void> add_grant(int ruleset, const Grant& grant, unsigned abi) {
  const Fd fd(::open(grant.path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) {
    // The file went away since it was listed, or is hidden from us: not granted is the safe side.
    return {};
  }
  const landlock_path_beneath_attr rule{.allowed_access = granted_rights(grant, abi),
                                        .parent_fd = fd.get()};
  if (::syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0U) != 0)
    return fail_sys("Landlock rule for " + grant.path, errno);
  return {};
}

}  // namespace

unsigned landlock_abi() {
  const long abi =
      ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  return abi > 0 ? static_cast<unsigned>(abi) : 0;
}

Result<std::vector<Grant>> landlock_grants(const LandlockRules& rules) { return Walk(rules).run(); }

Result<Fd> build_landlock(const LandlockRules& rules, unsigned abi) {
  LandlockRulesetAttr attr;
  attr.handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE |
                           LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK;
  if (abi >= 2) attr.handled_access_fs |= LANDLOCK_ACCESS_FS_REFER;
  if (abi >= 5) attr.handled_access_fs |= LANDLOCK_ACCESS_FS_IOCTL_DEV;
  std::size_t size = sizeof attr.handled_access_fs;
  if (abi >= 6) {
    attr.scoped = LANDLOCK_SCOPE_SIGNAL;
    size = sizeof attr;
  }
  CORRAL_TRY(const std::vector<Grant> grants, landlock_grants(rules));
  CORRAL_TRY(Fd ruleset, create_ruleset(attr, size));
  for (const Grant& grant : grants) CORRAL_CHECK(add_grant(ruleset.get(), grant, abi));
  return ruleset;
}

Result<Fd> build_landlock_scope() {
  LandlockRulesetAttr attr;
  attr.scoped = LANDLOCK_SCOPE_SIGNAL;
  return create_ruleset(attr, sizeof attr);
}

Result<void> enter_landlock(int ruleset) {
  if (::syscall(SYS_landlock_restrict_self, ruleset, 0U) != 0)
    return fail_sys("landlock_restrict_self", errno,
                    errno == E2BIG ? "too many Landlock domains are stacked already (16)" : "");
  return {};
}

}  // namespace corral::isolate

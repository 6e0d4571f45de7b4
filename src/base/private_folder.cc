// SPDX-License-Identifier: Apache-2.0
#include "base/private_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace corral {

Result<void> check_private_folder(const std::string& path) {
  struct stat found{};
  if (::lstat(path.c_str(), &found) != 0) return fail_sys("look at " + path, errno);
  if (S_ISDIR(found.st_mode) && found.st_uid == ::geteuid() && (found.st_mode & 022) == 0)
    return {};
  const std::string is = S_ISDIR(found.st_mode)
                             ? fmt::format("it is uid {}'s with mode {:04o}", found.st_uid,
                                           static_cast<unsigned>(found.st_mode) & 07777U)
                             : std::string("it is no folder");
  return fail(fmt::format("{}: not a folder that only this user can write to: {}", path, is),
              "remove it, or take it back: chown and chmod 0700");
}

Result<void> make_private_folder(const std::string& path, unsigned mode) {
  const bool made = ::mkdir(path.c_str(), mode) == 0;
  if (made ? ::chmod(path.c_str(), mode) != 0 : errno != EEXIST)
    return fail_sys("make folder " + path, errno);
  return check_private_folder(path);
}

}  // namespace corral

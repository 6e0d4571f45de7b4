// SPDX-License-Identifier: Apache-2.0
#include "trace/regular_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/file.h"

namespace corral::trace {

// The job can write in the folder, and we are not confined: a pipe would hold us for ever, a link
// could lead to the very node that the job may not open. O_PATH opens nothing; what it found is
// looked at, and that same inode is opened, whatever stands under the name by then.
Result<RegularFile> open_regular_file(const std::string& path) {
  CORRAL_TRY(const Fd found, open_file(path, O_PATH | O_NOFOLLOW));
  struct stat status{};
  if (::fstat(found.get(), &status) != 0) return fail_sys("stat " + path, errno);
  if (!S_ISREG(status.st_mode))
    return fail(fmt::format("{}: {}, and a trace is a regular file", path,
                            S_ISLNK(status.st_mode)    ? "a symbolic link"
                            : S_ISFIFO(status.st_mode) ? "a named pipe"
                            : S_ISDIR(status.st_mode)  ? "a folder"
                                                       : "a device node or a socket"),
                "it was not opened; nothing else was lost");
  auto opened = open_file(fmt::format("/proc/self/fd/{}", found.get()), O_RDONLY);
  if (!opened)
    return fail(path + ": " + opened.error().what, opened.error().hint, opened.error().sys);
  return RegularFile{.fd = *std::move(opened), .bytes = static_cast<std::uint64_t>(status.st_size)};
}

}  // namespace corral::trace

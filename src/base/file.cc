// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

namespace corral {

Result<Fd> open_file(const std::string& path, int flags, unsigned mode) {
  for (;;) {
    Fd fd(::open(path.c_str(), flags | O_CLOEXEC, mode));
    if (fd) return fd;
    if (errno != EINTR) return fail_sys("open " + path, errno);
  }
}

Result<std::string> read_file(const std::string& path, std::size_t limit_bytes) {
  CORRAL_TRY(Fd fd, open_file(path, O_RDONLY));
  std::string text;
  char buffer[16384];
  for (;;) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_sys("read " + path, errno);
    if (n == 0) return text;
    text.append(buffer, static_cast<std::size_t>(n));
    if (text.size() > limit_bytes)
      return fail("read " + path + ": larger than " + std::to_string(limit_bytes) + " bytes");
  }
}

Result<void> write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_sys("write", errno);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Result<void> write_existing(const std::string& path, std::string_view text) {
  CORRAL_TRY(Fd fd, open_file(path, O_WRONLY));
  if (::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return fail_sys("write " + path, errno);
  return {};
}

Result<void> write_file(const std::string& path, std::string_view text, unsigned mode) {
  CORRAL_TRY(Fd fd, open_file(path, O_WRONLY | O_CREAT | O_TRUNC, mode));
  if (auto done = write_all(fd.get(), text); !done)
    return fail_sys("write " + path, done.error().sys);
  return {};
}

Result<std::vector<std::string>> list_folder(const std::string& path) {
  std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), ::closedir);
  if (!dir) return fail_sys("open folder " + path, errno);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  if (errno != 0) return fail_sys("read folder " + path, errno);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace corral

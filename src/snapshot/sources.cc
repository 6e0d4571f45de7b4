// SPDX-License-Identifier: Apache-2.0
#include "snapshot/sources.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string_view>

#include "base/fd.h"
#include "base/file.h"
#include "snapshot/from_trace.h"

namespace corral::snapshot {
namespace {

constexpr std::size_t kMaxFiles = 64;
constexpr std::size_t kMaxBytes = 256U << 10;

void collect(const Run& run, pid_t pid, const std::vector<PythonFrame>& frames,
             std::set<std::string>& keys) {
  for (const PythonFrame& frame : frames)
    if (is_own_code(frame.file) && frame.file.ends_with(".py") && keys.size() < kMaxFiles)
      keys.insert(source_key(run, pid, frame.file));
}

struct Source {
  std::string text;
  bool changed = false;
};

// As Python reads a script: without a byte order mark, and lines end with \n, \r\n or \r.
std::string as_python_reads(std::string_view file) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (file.starts_with(kByteOrderMark)) file.remove_prefix(kByteOrderMark.size());
  std::string text;
  text.reserve(file.size());
  for (std::size_t i = 0; i < file.size(); ++i) {
    if (file[i] != '\r')
      text += file[i];
    else if (i + 1 == file.size() || file[i + 1] != '\n')
      text += '\n';
  }
  return text;
}

std::int64_t in_ns(const timespec& time) {
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

// Whether the path leads elsewhere than when the job began: a link on it is a newer one, or a
// folder was moved there. Files made in a folder change both its times, moving it only one.
bool leads_elsewhere(const std::string& path, std::int64_t started_realtime_ns) {
  for (std::size_t end = path.find('/', 1); end != path.npos; end = path.find('/', end + 1)) {
    struct stat status{};
    if (::lstat(path.substr(0, end).c_str(), &status) != 0) return true;
    if (in_ns(status.st_ctim) <= started_realtime_ns) continue;
    if (S_ISLNK(status.st_mode) || in_ns(status.st_mtim) <= started_realtime_ns) return true;
  }
  return false;
}

// O_PATH opens nothing: a pipe would hold us, and a device node must not be touched.
std::optional<Source> read_source(const std::string& path, std::int64_t started_realtime_ns) {
  const auto found = open_file(path, O_PATH | O_NOFOLLOW);
  struct stat status{};
  if (!found || ::fstat(found->get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      static_cast<std::uint64_t>(status.st_size) > kMaxBytes)
    return std::nullopt;
  // The time of the last write can be set, and another file that was put in its place brings its
  // own: the time of the last change tells of both.
  if (in_ns(status.st_ctim) > started_realtime_ns || leads_elsewhere(path, started_realtime_ns))
    return Source{.text = {}, .changed = true};
  auto text = read_file(fmt::format("/proc/self/fd/{}", found->get()), kMaxBytes);
  if (!text) return std::nullopt;
  return Source{.text = as_python_reads(*text), .changed = false};
}

}  // namespace

std::string source_key(const Run& run, pid_t pid, const std::string& file) {
  if (file.starts_with('/')) return file;
  for (const Init& init : run.inits)
    if (init.pid == pid && !init.cwd.empty()) return init.cwd + "/" + file;
  return file;
}

void add_sources(Run& run) {
  std::set<std::string> keys;
  for (const Context& context : run.contexts) {
    collect(run, context.pid, context.stack.python, keys);
    collect(run, context.pid, context.stack.main_thread, keys);
  }
  for (const Init& init : run.inits) collect(run, init.pid, init.stack.python, keys);
  for (const std::string& key : keys) {
    if (!key.starts_with('/')) continue;
    auto source = read_source(key, run.started_realtime_ns);
    if (!source) continue;
    if (source->changed)
      run.remarks.push_back(fmt::format("{} was changed after the job began: not read", key));
    else
      run.sources.emplace(key, std::move(source->text));
  }
}

}  // namespace corral::snapshot

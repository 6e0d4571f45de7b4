// SPDX-License-Identifier: Apache-2.0
// Reading processes from /proc.
#include "host/proc.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <map>
#include <unordered_set>

#include "base/file.h"
#include "base/text.h"

namespace corral::host {
namespace {

std::string process_path(const Root& root, pid_t pid, std::string_view name) {
  return root.path(fmt::format("/proc/{}/{}", pid, name));
}

// /proc/PID/maps writes a newline in a file name as \012.
std::string unescape_newlines(std::string_view path) {
  std::string out;
  for (std::size_t i = 0; i < path.size();) {
    if (path.substr(i).starts_with("\\012")) {
      out += '\n';
      i += 4;
    } else {
      out += path[i++];
    }
  }
  return out;
}

// "a\0b\0" gives {"a","b"}. Programs that rewrite their title may drop the last NUL.
std::vector<std::string> split_at_nul(std::string_view text) {
  if (text.empty()) return {};
  if (text.back() == '\0') text.remove_suffix(1);
  std::vector<std::string> out;
  for (const std::string_view part : split(text, '\0')) out.emplace_back(part);
  return out;
}

bool is_gone(const Error& error) { return error.sys == ENOENT || error.sys == ESRCH; }

// With the mount option hidepid=1 everybody else's processes are listed and closed.
bool is_hidden(const Error& error) { return error.sys == EACCES || error.sys == EPERM; }

// Parent to children, of every process there is.
Result<std::multimap<pid_t, pid_t>> family(const Root& root) {
  CORRAL_TRY(const std::vector<pid_t> pids, list_pids(root));
  std::multimap<pid_t, pid_t> out;
  for (const pid_t pid : pids) {
    const auto stat = read_stat(root, pid);
    if (stat)
      out.emplace(stat->parent, pid);
    else if (!is_gone(stat.error()) && !is_hidden(stat.error()))
      return std::unexpected(stat.error());
  }
  return out;
}

// The kernel's own list (CONFIG_PROC_CHILDREN): a few small files instead of every process of the
// host. It may miss a child while a sibling ends. nullopt: this kernel, or this captured host, has
// none, or the process is gone.
std::optional<std::vector<pid_t>> listed_children(const Root& root, pid_t pid) {
  const std::string tasks = root.path("/proc/" + std::to_string(pid) + "/task");
  const auto threads = list_folder(tasks);
  if (!threads) return std::nullopt;
  std::vector<pid_t> out;
  for (const std::string& thread : *threads) {
    const auto text = read_file(tasks + "/" + thread + "/children");
    if (!text && thread == std::to_string(pid)) return std::nullopt;
    if (!text) continue;  // the thread has ended
    for (const std::string_view word : split(*text, ' '))
      if (const auto child = parse_number<pid_t>(trim(word))) out.push_back(*child);
  }
  std::ranges::sort(out);
  return out;
}

}  // namespace

Result<ProcessStat> parse_stat(std::string_view text) {
  // The name is in parentheses and may hold any byte: only the last ')' ends it.
  const auto open = text.find(" (");
  const auto close = text.rfind(") ");
  if (open == std::string_view::npos || close == std::string_view::npos || close < open + 2)
    return fail("stat of a process: no name in parentheses");
  constexpr std::size_t kState = 0, kParent = 1, kStart = 19;  // fields 3, 4 and 22 of proc(5)
  const auto fields = split(text.substr(close + 2), ' ');
  if (fields.size() <= kStart)
    return fail(fmt::format("stat of a process: {} fields after the name, at least {} expected",
                            fields.size(), kStart + 1));
  const auto pid = parse_number<pid_t>(text.substr(0, open));
  const auto parent = parse_number<pid_t>(fields[kParent]);
  const auto start = parse_number<std::uint64_t>(trim(fields[kStart]));
  if (!pid || !parent || !start || fields[kState].size() != 1)
    return fail("stat of a process: a field is no number");
  return ProcessStat{*pid, std::string(text.substr(open + 2, close - open - 2)),
                     fields[kState].front(), *parent, *start};
}

Result<ProcessStatus> parse_status(std::string_view text) {
  std::optional<uid_t> uid;
  ProcessStatus out;
  for (const std::string_view line : split(text, '\n')) {
    if (line.starts_with("Uid:\t")) {
      const auto fields = split(line.substr(5), '\t');  // real, effective, saved, file system
      if (fields.size() > 1) uid = parse_number<uid_t>(fields[1]);
    } else if (line.starts_with("NSpid:\t")) {
      for (const std::string_view field : split(line.substr(7), '\t')) {
        const auto pid = parse_number<pid_t>(field);
        if (!pid) return fail("status of a process: '" + printable(line) + "' holds no pid");
        out.namespace_pids.push_back(*pid);
      }
    }
  }
  if (!uid) return fail("status of a process: no effective uid in it");
  out.uid = *uid;
  return out;
}

std::vector<std::string> parse_mapped_files(std::string_view maps) {
  constexpr std::string_view kDeleted = " (deleted)";
  std::vector<std::string> out;
  std::unordered_set<std::string_view> seen;
  for (std::string_view line : split(maps, '\n')) {
    // "from-to perms offset dev inode      path": five fields without blanks before the path.
    for (int field = 0; field < 5 && !line.empty(); ++field) {
      const auto blank = line.find(' ');
      line = blank == std::string_view::npos ? std::string_view() : line.substr(blank);
      line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    }
    if (!line.starts_with('/')) continue;
    if (line.ends_with(kDeleted)) line.remove_suffix(kDeleted.size());
    if (seen.insert(line).second) out.push_back(unescape_newlines(line));
  }
  return out;
}

Result<ProcessStat> read_stat(const Root& root, pid_t pid) {
  CORRAL_TRY(const std::string text, read_file(process_path(root, pid, "stat")));
  return parse_stat(text);
}

Result<ProcessStatus> read_status(const Root& root, pid_t pid) {
  CORRAL_TRY(const std::string text, read_file(process_path(root, pid, "status")));
  return parse_status(text);
}

Result<std::vector<std::string>> read_arguments(const Root& root, pid_t pid) {
  CORRAL_TRY(const std::string text, read_file(process_path(root, pid, "cmdline")));
  return split_at_nul(text);
}

Result<std::string> describe_process(const Root& root, pid_t pid, std::size_t limit_bytes) {
  constexpr std::string_view kCut = "…";
  CORRAL_TRY(const std::vector<std::string> arguments, read_arguments(root, pid));
  std::string text;
  if (arguments.empty()) {
    CORRAL_TRY(const ProcessStat stat, read_stat(root, pid));
    text = printable("[" + stat.comm + "]");
  }
  for (const std::string& argument : arguments) {
    if (!text.empty()) text += ' ';
    text += shell_quote(printable(std::string_view(argument).substr(0, limit_bytes)));
    if (text.size() > limit_bytes) break;
  }
  if (text.size() <= limit_bytes) return text;
  std::size_t end = limit_bytes > kCut.size() ? limit_bytes - kCut.size() : 0;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // whole UTF-8
  return text.substr(0, end) + std::string(kCut);
}

Result<std::vector<std::string>> mapped_files(const Root& root, pid_t pid) {
  const std::string path = process_path(root, pid, "maps");
  CORRAL_TRY(const std::string text, read_file(path));
  // A process that is ending keeps its /proc entry but not its memory: nothing is known of it.
  if (text.empty())
    return fail(path + ": empty; the process is ending or belongs to the kernel", {}, ESRCH);
  return parse_mapped_files(text);
}

std::vector<std::string> with_basename_prefix(const std::vector<std::string>& files,
                                              std::string_view prefix) {
  std::vector<std::string> out;
  for (const std::string& file : files)
    if (std::string_view(file).substr(file.rfind('/') + 1).starts_with(prefix)) out.push_back(file);
  return out;
}

Result<std::vector<OpenDevice>> open_devices(const Root& root, pid_t pid) {
  const std::string folder = process_path(root, pid, "fd");
  CORRAL_TRY(const std::vector<std::string> names, list_folder(folder));
  std::vector<OpenDevice> out;
  for (const std::string& name : names) {
    const std::string link = folder + "/" + name;
    const auto fd = parse_number<int>(name);
    if (!fd) return fail(link + ": no descriptor number");
    // stat() through the link reaches the very file that is open, even when its name is gone.
    struct stat node{};
    if (::stat(link.c_str(), &node) != 0) {
      if (errno == ENOENT || errno == ESRCH) continue;  // closed meanwhile
      return fail_sys("stat " + link, errno);
    }
    if (!S_ISCHR(node.st_mode) && !S_ISBLK(node.st_mode)) continue;
    char target[PATH_MAX];
    const ssize_t length = ::readlink(link.c_str(), target, sizeof target);
    if (length < 0) {
      if (errno == ENOENT || errno == ESRCH) continue;
      return fail_sys("read link " + link, errno);
    }
    out.push_back({*fd, std::string(target, static_cast<std::size_t>(length)), node.st_rdev,
                   S_ISBLK(node.st_mode)});
  }
  std::ranges::sort(out, {}, &OpenDevice::fd);
  return out;
}

Result<std::optional<std::string>> environment_variable(const Root& root, pid_t pid,
                                                        std::string_view name) {
  CORRAL_TRY(const std::string text, read_file(process_path(root, pid, "environ")));
  if (text.empty()) CORRAL_CHECK(mapped_files(root, pid));  // ending, or truly without variables?
  for (const std::string_view entry : split(text, '\0'))
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      return std::string(entry.substr(name.size() + 1));
  return std::nullopt;
}

Result<std::vector<pid_t>> list_pids(const Root& root) {
  CORRAL_TRY(const std::vector<std::string> names, list_folder(root.path("/proc")));
  std::vector<pid_t> out;
  for (const std::string& name : names)
    if (const auto pid = parse_number<pid_t>(name); pid && *pid > 0) out.push_back(*pid);
  std::ranges::sort(out);
  return out;
}

Result<std::vector<pid_t>> children(const Root& root, pid_t pid) {
  if (auto listed = listed_children(root, pid)) return *std::move(listed);
  CORRAL_TRY(const auto tree, family(root));
  const auto [begin, end] = tree.equal_range(pid);
  std::vector<pid_t> out;
  for (auto it = begin; it != end; ++it) out.push_back(it->second);
  std::ranges::sort(out);
  return out;
}

Result<std::vector<pid_t>> descendants(const Root& root, pid_t pid) {
  std::multimap<pid_t, pid_t> tree;
  const bool listed = listed_children(root, pid).has_value();
  if (!listed) {
    CORRAL_TRY(tree, family(root));
  }
  const auto children_of = [&](pid_t parent) {
    if (listed) return listed_children(root, parent).value_or(std::vector<pid_t>{});
    std::vector<pid_t> out;
    const auto [begin, end] = tree.equal_range(parent);
    for (auto it = begin; it != end; ++it) out.push_back(it->second);
    return out;
  };
  std::vector<pid_t> out;
  // Not recursive, and every pid once: pids read at different moments can form a ring.
  std::unordered_set<pid_t> seen = {pid};
  std::vector<pid_t> open = {pid};
  while (!open.empty()) {
    const pid_t parent = open.back();
    open.pop_back();
    for (const pid_t child : children_of(parent)) {
      if (!seen.insert(child).second) continue;
      out.push_back(child);
      open.push_back(child);
    }
  }
  std::ranges::sort(out);
  return out;
}

}  // namespace corral::host

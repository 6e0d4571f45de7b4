// SPDX-License-Identifier: Apache-2.0
#include "host/mountinfo.h"

#include <algorithm>

#include "base/file.h"
#include "base/text.h"

namespace corral::host {
namespace {

bool is_octal(char c) { return c >= '0' && c <= '7'; }

// The kernel writes blank, tab, newline and backslash as \ooo.
std::string unescape(std::string_view field) {
  std::string out;
  for (std::size_t i = 0; i < field.size(); ++i) {
    if (field[i] == '\\' && i + 3 < field.size() && is_octal(field[i + 1]) &&
        is_octal(field[i + 2]) && is_octal(field[i + 3])) {
      out += static_cast<char>((field[i + 1] - '0') * 64 + (field[i + 2] - '0') * 8 +
                               (field[i + 3] - '0'));
      i += 3;
    } else {
      out += field[i];
    }
  }
  return out;
}

std::vector<std::string> option_list(std::string_view field) {
  std::vector<std::string> options;
  for (const std::string_view option : split(field, ',')) options.push_back(unescape(option));
  return options;
}

// 22 27 0:21 / /proc rw,relatime shared:1 - proc proc rw
std::optional<Mount> parse_line(std::string_view line) {
  const std::vector<std::string_view> fields = split(line, ' ');
  const auto dash = std::ranges::find(fields, "-");
  const auto before = static_cast<std::size_t>(dash - fields.begin());
  if (before < 6 || fields.size() < before + 3) return std::nullopt;
  const auto id = parse_number<unsigned>(fields[0]);
  const auto parent = parse_number<unsigned>(fields[1]);
  const std::vector<std::string_view> device = split(fields[2], ':');
  if (!id || !parent || device.size() != 2) return std::nullopt;
  const auto major = parse_number<unsigned>(device[0]);
  const auto minor = parse_number<unsigned>(device[1]);
  if (!major || !minor) return std::nullopt;
  Mount mount{.id = *id,
              .parent_id = *parent,
              .major = *major,
              .minor = *minor,
              .root = unescape(fields[3]),
              .point = unescape(fields[4]),
              .options = option_list(fields[5]),
              .type = unescape(fields[before + 1]),
              .source = unescape(fields[before + 2]),
              .super_options = {}};
  if (fields.size() > before + 3) mount.super_options = option_list(fields[before + 3]);
  return mount;
}

// What follows `prefix` in `path` when it is `prefix` or lies below it.
std::optional<std::string_view> below(std::string_view path, std::string_view prefix) {
  if (prefix == "/") return path == "/" ? std::string_view{} : path;
  if (!path.starts_with(prefix)) return std::nullopt;
  path.remove_prefix(prefix.size());
  if (!path.empty() && path.front() != '/') return std::nullopt;
  return path;
}

std::string append(std::string_view folder, std::string_view rest) {
  std::string path(folder == "/" ? std::string_view{} : folder);
  path += rest;
  return path.empty() ? "/" : path;
}

}  // namespace

bool Mount::has_option(std::string_view name) const {
  return std::ranges::find(options, name) != options.end();
}

bool Mount::has_super_option(std::string_view name) const {
  return std::ranges::find(super_options, name) != super_options.end();
}

Result<std::vector<Mount>> parse_mountinfo(std::string_view text) {
  std::vector<Mount> mounts;
  std::size_t number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    if (line.empty()) continue;
    std::optional<Mount> mount = parse_line(line);
    if (!mount)
      return fail("mountinfo line " + std::to_string(number) + ": \"" + printable(line) +
                  "\" is not a mount as proc_pid_mountinfo(5) describes it");
    mounts.push_back(*std::move(mount));
  }
  return mounts;
}

Result<std::vector<Mount>> read_mountinfo(const Root& root) {
  const auto text = read_file(root.path("/proc/self/mountinfo"));
  if (!text) return fail(text.error().what, "corral needs /proc to be mounted", text.error().sys);
  return parse_mountinfo(*text);
}

std::vector<std::string> other_names(const std::vector<Mount>& mounts, unsigned mount_id,
                                     std::string_view path) {
  const auto own = std::ranges::find(mounts, mount_id, &Mount::id);
  if (own == mounts.end()) return {};
  const auto rest = below(path, own->point);
  if (!rest) return {};
  const std::string inside = append(own->root, *rest);
  std::vector<std::string> names;
  for (const Mount& mount : mounts) {
    if (mount.id == mount_id || mount.major != own->major || mount.minor != own->minor) continue;
    if (const auto tail = below(inside, mount.root)) {
      std::string name = append(mount.point, *tail);
      if (name != path && std::ranges::find(names, name) == names.end())
        names.push_back(std::move(name));
    }
  }
  return names;
}

}  // namespace corral::host

// SPDX-License-Identifier: Apache-2.0
#include "launch/run_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "host/proc.h"

namespace corral::launch {
namespace {

constexpr std::string_view kPrefix = "run-";

struct ProcessName {
  pid_t pid = 0;
  std::uint64_t start_ticks = 0;
};

// "PID-START", as run folders and trace files are named.
std::optional<ProcessName> parse_process_name(std::string_view text) {
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto pid = parse_number<pid_t>(text.substr(0, dash));
  const auto start = parse_number<std::uint64_t>(text.substr(dash + 1));
  if (!pid || !start) return std::nullopt;
  return ProcessName{*pid, *start};
}

bool alive(const ProcessName& name) {
  const auto stat = host::read_stat(host::Root(), name.pid);
  return stat && stat->start_ticks == name.start_ticks && stat->state != 'Z';
}

// A job outlives a Corral that was killed, and goes on writing its trace.
bool in_use(const std::string& folder, const ProcessName& owner) {
  if (alive(owner)) return true;
  const auto traces = list_folder(folder + "/trace");
  if (!traces) return false;
  for (const std::string& file : *traces) {
    const auto process = parse_process_name(std::string_view(file).substr(0, file.find('.')));
    if (process && alive(*process)) return true;
  }
  return false;
}

void remove_tree(const std::string& path) {
  std::error_code ignored;  // the next start tries again
  std::filesystem::remove_all(path, ignored);
}

void remove_stale(const std::string& base) {
  const auto names = list_folder(base);
  if (!names) return;
  for (const std::string& name : *names) {
    if (!name.starts_with(kPrefix)) continue;
    const auto owner = parse_process_name(std::string_view(name).substr(kPrefix.size()));
    if (owner && !in_use(base + "/" + name, *owner)) remove_tree(base + "/" + name);
  }
}

// The base must be a folder of ours that nobody else can write to: in a shared /tmp somebody may
// have made it first.
Result<void> make_private_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return fail_sys("make folder " + path, errno);
  struct stat found{};
  if (::lstat(path.c_str(), &found) != 0) return fail_sys("look at " + path, errno);
  if (!S_ISDIR(found.st_mode) || found.st_uid != ::geteuid() || (found.st_mode & 022) != 0)
    return fail(path + ": not a folder that only this user can write to");
  return {};
}

Result<void> link_to(std::string_view target, const std::string& path) {
  if (::symlink(std::string(target).c_str(), path.c_str()) != 0)
    return fail_sys("link " + path, errno);
  return {};
}

Result<void> fill(const std::string& path, std::string_view shim, std::string_view driver) {
  for (const char* folder : {"", "/lib", "/trace"})
    if (::mkdir((path + folder).c_str(), 0700) != 0)
      return fail_sys("make folder " + path + folder, errno);
  CORRAL_CHECK(link_to(shim, path + "/lib/libcuda.so.1"));
  CORRAL_CHECK(link_to("libcuda.so.1", path + "/lib/libcuda.so"));
  return link_to(driver, path + "/lib/libcorral-driver.so");
}

}  // namespace

RunFolder::RunFolder(RunFolder&& other) noexcept
    : path_(std::move(other.path_)), keep_(other.keep_) {
  other.keep_ = true;
}

RunFolder& RunFolder::operator=(RunFolder&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(keep_, other.keep_);
  return *this;
}

RunFolder::~RunFolder() {
  if (!keep_) remove_tree(path_);
}

std::vector<std::string> run_folder_bases(uid_t uid, const char* runtime_folder,
                                          const char* temporary_folder) {
  std::vector<std::string> bases;
  if (uid == 0) bases.emplace_back("/run/corral");
  if (runtime_folder != nullptr && *runtime_folder == '/')
    bases.push_back(std::string(runtime_folder) + "/corral");
  const bool named = temporary_folder != nullptr && *temporary_folder == '/';
  bases.push_back(fmt::format("{}/corral-{}", named ? temporary_folder : "/tmp", uid));
  if (named) bases.push_back(fmt::format("/tmp/corral-{}", uid));
  return bases;
}

Result<RunFolder> make_run_folder(const std::vector<std::string>& bases, std::string_view shim,
                                  std::string_view driver) {
  CORRAL_TRY(const host::ProcessStat self, host::read_stat(host::Root(), ::getpid()));
  std::vector<std::string> reasons;
  for (const std::string& base : bases) {
    if (auto made = make_private_folder(base); !made) {
      reasons.push_back(made.error().what);
      continue;
    }
    remove_stale(base);
    RunFolder folder(fmt::format("{}/{}{}-{}", base, kPrefix, self.pid, self.start_ticks));
    auto filled = fill(folder.path(), shim, driver);
    if (filled) return folder;
    reasons.push_back(filled.error().what);
  }
  return fail("no folder for the run: " + join(reasons, "; "),
              "set TMPDIR to a folder that can be written to");
}

}  // namespace corral::launch

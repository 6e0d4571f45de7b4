// SPDX-License-Identifier: Apache-2.0
#include "launch/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/private_folder.h"
#include "base/text.h"
#include "host/proc.h"

namespace corral::launch {
namespace {

constexpr std::string_view kPrefix = "run-";
// A folder that is not locked yet: renamed when it is.
constexpr std::string_view kUnfinishedPrefix = "making-";
constexpr auto kForeignLife = std::chrono::hours(24);

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
bool seen_in_use(const std::string& folder, const ProcessName& owner) {
  if (alive(owner)) return true;
  const auto traces = list_folder(folder + "/trace");
  if (!traces) return false;
  for (const std::string& file : *traces) {
    const auto process = parse_process_name(std::string_view(file).substr(0, file.find('.')));
    if (process && alive(*process)) return true;
  }
  return false;
}

// Which pid namespace the pids in a folder are of; nullopt without /proc.
std::optional<ino_t> pid_namespace() {
  struct stat found{};
  if (::stat("/proc/self/ns/pid", &found) != 0) return std::nullopt;
  return found.st_ino;
}

// Whether something was made or written there within the last day.
bool is_recent(const std::string& folder) {
  namespace fs = std::filesystem;
  const auto recent = [limit =
                           fs::file_time_type::clock::now() - kForeignLife](const fs::path& path) {
    std::error_code error;
    const auto written = fs::last_write_time(path, error);
    return !error && written > limit;
  };
  if (recent(folder) || recent(folder + "/trace")) return true;
  const auto traces = list_folder(folder + "/trace");
  return traces && std::ranges::any_of(*traces, [&](const std::string& file) {
           return recent(folder + "/trace/" + file);
         });
}

// Whether nobody needs the folder any more. Its owner locks it, which every pid namespace that
// shares the base can see; what the owner left behind can be seen in its own namespace alone.
bool is_over(const std::string& folder, const ProcessName& owner) {
  const Fd lock(::open((folder + "/lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  // Without a lock it was being removed: none is made so.
  if (!lock) return errno == ENOENT && !seen_in_use(folder, owner);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return false;
  if (seen_in_use(folder, owner)) return false;
  const auto text = read_file(folder + "/lock");
  const auto theirs = text ? parse_number<ino_t>(trim(*text)) : std::nullopt;
  const bool ours = theirs && theirs == pid_namespace();
  return ours || !is_recent(folder);
}

void remove_tree(const std::string& path) {
  std::error_code ignored;  // the next start tries again
  std::filesystem::remove_all(path, ignored);
}

void remove_stale(const std::string& base) {
  const auto names = list_folder(base);
  if (!names) return;
  for (const std::string& name : *names) {
    const std::string path = base + "/" + name;
    if (name.starts_with(kUnfinishedPrefix) && !is_recent(path)) remove_tree(path);
    if (!name.starts_with(kPrefix)) continue;
    const auto owner = parse_process_name(std::string_view(name).substr(kPrefix.size()));
    if (owner && is_over(path, *owner)) remove_tree(path);
  }
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

// Makes and takes the lock, and writes our pid namespace into it.
Result<Fd> lock_folder(const std::string& folder) {
  const std::string path = folder + "/lock";
  Fd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!lock) return fail_sys("make " + path, errno);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return fail_sys("lock " + path, errno);
  if (const auto space = pid_namespace())
    CORRAL_CHECK(write_all(lock.get(), fmt::format("{}\n", *space)));
  return lock;
}

// Makes the folder under another name first: nobody may see it before it is locked.
Result<Fd> make_locked(const std::string& base, const std::string& name, std::string_view shim,
                       std::string_view driver) {
  const std::string unfinished = fmt::format("{}/{}{}", base, kUnfinishedPrefix, name);
  const std::string path = fmt::format("{}/{}{}", base, kPrefix, name);
  const auto filled = fill(unfinished, shim, driver);
  Result<Fd> lock = filled ? lock_folder(unfinished) : std::unexpected(filled.error());
  if (lock && ::rename(unfinished.c_str(), path.c_str()) != 0)
    lock = fail_sys("rename " + unfinished + " to " + path, errno);
  if (!lock) remove_tree(unfinished);
  return lock;
}

// What would end an entry of LD_LIBRARY_PATH, or be expanded in it (ld.so(8)).
bool fits_library_path(std::string_view path) {
  return path.find_first_of(":;$") == std::string_view::npos;
}

}  // namespace

RunFolder::RunFolder(RunFolder&& other) noexcept
    : path_(std::move(other.path_)), lock_(std::move(other.lock_)), keep_(other.keep_) {
  other.keep_ = true;
}

RunFolder& RunFolder::operator=(RunFolder&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(lock_, other.lock_);
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
  std::erase_if(bases, [](const std::string& base) { return !fits_library_path(base); });
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
    const std::string name = fmt::format("{}-{}", self.pid, self.start_ticks);
    auto lock = make_locked(base, name, shim, driver);
    if (lock) return RunFolder(fmt::format("{}/{}{}", base, kPrefix, name), *std::move(lock));
    reasons.push_back(lock.error().what);
  }
  return fail("no folder for the run: " + join(reasons, "; "),
              "set TMPDIR to a folder that can be written to");
}

}  // namespace corral::launch

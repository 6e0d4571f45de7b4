// SPDX-License-Identifier: Apache-2.0
#include "launch/watch.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "host/proc.h"

namespace corral::launch {
namespace {

constexpr rlim_t kTraceBytes = 1 << 20;

// What /proc/PID/maps shows: links resolved.
std::string resolved(const std::string& path) {
  std::error_code error;
  const auto real = std::filesystem::canonical(path, error);
  return error ? path : real.string();
}

// Whether the folder is not there for the process, in its own root and mount namespace.
bool lacks_folder(pid_t pid, const std::string& folder) {
  const std::string root = "/proc/" + std::to_string(pid) + "/root";
  return ::access((root + "/").c_str(), X_OK) == 0 &&
         ::access((root + folder).c_str(), F_OK) != 0 && errno == ENOENT;
}

}  // namespace

JobWatch::JobWatch(std::string library_folder, std::string trace_folder, std::string driver)
    : library_folder_(std::move(library_folder)),
      trace_folder_(std::move(trace_folder)),
      driver_(std::move(driver)) {}

void JobWatch::look_at(Entry& entry) {
  SeenProcess& process = entry.process;
  // The command changes at exec.
  if (auto command = host::describe_process(host::Root(), process.pid))
    process.command = *std::move(command);
  const auto files = host::mapped_files(host::Root(), process.pid);
  if (!files) return;
  const std::string driver = resolved(driver_);
  const std::string shim =
      library_folder_.empty() ? "" : resolved(library_folder_ + "/libcuda.so.1");
  const auto maps = [&](const std::string& path) {
    return !path.empty() && std::ranges::find(*files, path) != files->end();
  };
  process.maps_shim = maps(shim);
  // A container brings its own driver library: any of that name counts.
  const bool other = std::ranges::any_of(host::with_basename_prefix(*files, "libcuda.so"),
                                         [&](const std::string& path) { return path != shim; });
  process.maps_driver = maps(driver) || other;
  for (const std::string& path : *files)
    if (const auto name = std::filesystem::path(path).filename().string();
        name.find("injection") != std::string::npos)
      process.injection = name;
  process.unobserved_why = process.maps_driver ? why_unobserved(process) : "";
}

std::string JobWatch::why_unobserved(const SeenProcess& process) const {
  if (library_folder_.empty()) return "observation was off";
  const auto variable = [&](const char* name) {
    return host::environment_variable(host::Root(), process.pid, name);
  };
  const auto path = variable("LD_LIBRARY_PATH");
  if (!process.maps_shim) {
    if (lacks_folder(process.pid, library_folder_))
      return "it runs in a container or under another root, without Corral's run folder";
    if (!path) return "it uses the driver itself; its environment could not be read";
    const bool kept = *path && (*path)->find(library_folder_) != std::string::npos;
    const auto status = host::read_status(host::Root(), process.pid);
    if (kept && status && status->uid != ::geteuid())
      return "another user may not read the run folder";
    return kept ? "it opened the driver by its path, not by its name"
                : "its LD_LIBRARY_PATH was reset or replaced";
  }
  // The shim is there, but what it sees must come to us.
  const auto folder = variable("CORRAL_TRACE_DIR");
  if (!folder) return "its environment could not be read";
  if (!*folder) return "its CORRAL_TRACE_DIR was reset";
  if (**folder != trace_folder_) return "it reports to another Corral, inside this job";
  rlimit limit{};
  if (::prlimit(process.pid, RLIMIT_FSIZE, nullptr, &limit) == 0 && limit.rlim_cur < kTraceBytes)
    return "it may not write files as large as a trace";
  return "";
}

void JobWatch::look(const std::vector<pid_t>& pids) {
  ++round_;
  for (const pid_t pid : pids) {
    const auto stat = host::read_stat(host::Root(), pid);
    if (!stat || stat->state == 'Z') continue;
    Entry& entry = entries_[{pid, stat->start_ticks}];
    if (entry.process.maps_shim || round_ < entry.next_look) continue;
    entry.process.pid = pid;
    entry.process.start_ticks = stat->start_ticks;
    look_at(entry);
    entry.next_look = round_ + (1U << std::min(entry.looks++, 5U));
  }
}

std::vector<SeenProcess> JobWatch::seen() const {
  std::vector<SeenProcess> out;
  for (const auto& [key, entry] : entries_) out.push_back(entry.process);
  return out;
}

}  // namespace corral::launch

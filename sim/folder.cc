// SPDX-License-Identifier: Apache-2.0
// Makes the folder of a simulated machine, and removes those whose owner is gone.
#include "folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "host_files.h"
#include "nodes.h"

namespace corral::sim {
namespace {

namespace fs = std::filesystem;

// Whose folder it is: pid, start time and pid namespace, as one line.
std::string identity(pid_t pid) {
  const auto stat = read_file(fmt::format("/proc/{}/stat", pid));
  if (!stat) return {};
  const auto fields = split(std::string_view(*stat).substr(stat->rfind(')') + 1), ' ');
  std::error_code ignored;
  const fs::path space = fs::read_symlink("/proc/self/ns/pid", ignored);
  return fmt::format("{} {} {}\n", pid, fields.size() > 20 ? fields[20] : "?", space.string());
}

// Whether the folder is ours to remove: its owner was of our pid namespace and is gone.
bool abandoned(const fs::path& folder) {
  if (fs::exists(folder / "keep")) return false;
  const auto owner = read_file((folder / "owner").string());
  if (!owner) return false;
  const auto words = split(trim(*owner), ' ');
  if (words.size() != 3) return false;
  std::error_code ignored;
  if (words[2] != fs::read_symlink("/proc/self/ns/pid", ignored).string()) return false;
  const auto pid = parse_number<pid_t>(words[0]);
  return pid && identity(*pid) != *owner;
}

void remove_abandoned(const fs::path& place) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(place, ignored)) {
    if (abandoned(entry.path())) fs::remove_all(entry.path(), ignored);
  }
}

bool is_below(std::string_view path, std::string_view top) {
  return path == top || (path.starts_with(top) && path.substr(top.size()).starts_with('/'));
}

Result<std::string> usable_place(const std::string& place) {
  std::error_code error;
  std::string real = fs::weakly_canonical(fs::absolute(place), error).string();
  for (const char* refused : {"/tmp", "/dev/shm"}) {
    if (!is_below(real, refused)) continue;
    return fail(fmt::format("{}: a simulated machine must not be below {}", real, refused),
                "refusing one of its nodes would take new files from that folder; give --dir "
                "another place");
  }
  fs::create_directories(real, error);
  if (error) return fail_sys(real, error.value(), "give --dir a folder that can be made");
  return real;
}

Result<std::string> user_place() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime != '\0') return std::string(runtime) + "/corral-sim";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') return std::string(home) + "/.cache/corral-sim";
  return fail("neither XDG_RUNTIME_DIR nor HOME is set", "set HOME, or give --dir");
}

// The first place that serves, and one that takes device nodes before one that does not.
Result<std::string> choose_place() {
  if (geteuid() != 0) {
    CORRAL_TRY(const std::string wanted, user_place());
    return usable_place(wanted);
  }
  std::optional<std::string> without_nodes;
  Result<std::string> last = fail("no place");
  for (const char* candidate : {"/run/corral-sim", "/var/lib/corral-sim"}) {
    last = usable_place(candidate);
    if (!last) continue;
    if (device_nodes_work(*last)) return last;
    if (!without_nodes) without_nodes = *last;
  }
  if (without_nodes) return *without_nodes;
  return last;
}

Result<void> make_folders(const std::string& folder) {
  for (const char* below : {"", "/dev", "/lib"}) {
    std::error_code error;
    fs::create_directories(folder + below, error);
    if (error) return fail_sys(folder + below, error.value());
    if (chmod((folder + below).c_str(), 0755) != 0) return fail_sys(folder + below, errno);
  }
  return {};
}

Result<void> link_libraries(const std::string& folder, const FolderOptions& options) {
  const std::string nvml = options.old_nvml ? "libnvidia-ml-old.so" : "libnvidia-ml.so.1";
  for (const auto& [link, library] :
       {std::pair<std::string, std::string>{"libcuda.so.1", "libcuda.so.1"},
        {"libcuda.so", "libcuda.so.1"},
        {"libnvidia-ml.so.1", nvml}}) {
    const std::string target = options.libraries + "/" + library;
    if (access(target.c_str(), R_OK) != 0) {
      return fail_sys(target, errno, "build it: it belongs beside corral-sim");
    }
    if (symlink(target.c_str(), (folder + "/lib/" + link).c_str()) != 0) {
      return fail_sys(folder + "/lib/" + link, errno);
    }
  }
  return {};
}

Result<void> write_state(const std::string& folder, const State& state) {
  const std::string path = folder + "/state";
  CORRAL_TRY(const Fd file, open_file(path, O_WRONLY | O_CREAT | O_EXCL, 0666));
  CORRAL_CHECK(write_all(file.get(), {reinterpret_cast<const char*>(&state), sizeof state}));
  // Other users' processes are on the machine too.
  if (fchmod(file.get(), 0666) != 0) return fail_sys(path, errno);
  return {};
}

Result<void> fill(const std::string& folder, const Profile& profile, const FolderOptions& options) {
  CORRAL_CHECK(make_folders(folder));
  CORRAL_CHECK(write_file(folder + "/owner", identity(getpid())));
  if (options.keep) CORRAL_CHECK(write_file(folder + "/keep", ""));
  CORRAL_TRY(const NodeNumbers numbers, make_nodes(folder, profile));
  CORRAL_CHECK(write_host_files(folder, profile, numbers));
  CORRAL_CHECK(link_libraries(folder, options));
  CORRAL_CHECK(write_file(folder + "/profile.json", options.profile_text));
  CORRAL_CHECK(write_file(folder + "/about.txt",
                          fmt::format("SIMULATED machine \"{}\": nothing here is a real GPU.\n{}\n",
                                      options.name, numbers.about)));
  return write_state(folder, *profile.state);
}

}  // namespace

Result<std::string> make_folder(const Profile& profile, const FolderOptions& options) {
  std::string folder, place;
  if (options.place) {
    CORRAL_TRY(folder, usable_place(*options.place));
    place = fs::path(folder).parent_path().string();
    std::error_code ignored;
    if (abandoned(folder)) fs::remove_all(folder, ignored);
  } else {
    CORRAL_TRY(place, choose_place());
    remove_abandoned(place);
    folder = fmt::format("{}/{}-{}", place, options.name, getpid());
  }
  // Made under another name first: nobody meets half a machine.
  const std::string unfinished = fmt::format("{}/.new-{}", place, getpid());
  std::error_code error;
  fs::remove_all(unfinished, error);
  if (const auto filled = fill(unfinished, profile, options); !filled) {
    fs::remove_all(unfinished, error);
    return std::unexpected(filled.error());
  }
  if (rename(unfinished.c_str(), folder.c_str()) != 0) {
    const int reason = errno;
    fs::remove_all(unfinished, error);
    return fail_sys(folder, reason, "the folder must be new or empty");
  }
  return folder;
}

}  // namespace corral::sim

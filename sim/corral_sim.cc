// SPDX-License-Identifier: Apache-2.0
// corral-sim NAME -- CMD…: sets up a simulated machine and becomes CMD on it.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/text.h"
#include "folder.h"
#include "profile.h"

namespace corral::sim {
namespace {

constexpr int kUsage = 64;
constexpr int kNoSetup = 125;
constexpr int kCannotExecute = 126;
constexpr int kNoCommand = 127;

constexpr const char* kHelp =
    "usage: corral-sim [--dir DIR] [--keep] [--old-nvml] NAME -- CMD…\n"
    "       corral-sim --list\n"
    "\n"
    "Runs CMD on a SIMULATED GPU machine: its CORRAL_SIM names the machine's folder, and its "
    "libcuda.so.1 and\n"
    "libnvidia-ml.so.1 are the simulated ones. NAME is one of --list, or the path of a profile.\n"
    "\n"
    "  --dir DIR    make the machine there (new or empty; not below /tmp or /dev/shm)\n"
    "  --keep       later starts do not remove the machine when CMD is gone\n"
    "  --old-nvml   an NVML without the newer functions\n"
    "\n"
    "CORRAL_SIM_FAST=0 lets calls take the time they take on hardware; CORRAL_SIM_DECAY_S=S sets "
    "how long a\n"
    "GPU takes to become idle. Exit codes: CMD's own; 125 no machine, 126 CMD cannot be run, 127 "
    "CMD not found.\n";

struct Arguments {
  FolderOptions folder;
  std::string profile;
  char** command = nullptr;
  bool list = false, help = false;
};

Result<Arguments> parse(int count, char** words) {
  Arguments arguments;
  int i = 1;
  for (; i < count && std::string_view(words[i]) != "--"; ++i) {
    const std::string_view word = words[i];
    if (word == "--keep") {
      arguments.folder.keep = true;
    } else if (word == "--old-nvml") {
      arguments.folder.old_nvml = true;
    } else if (word == "--list") {
      arguments.list = true;
    } else if (word == "--help" || word == "-h") {
      arguments.help = true;
    } else if (word == "--dir") {
      if (++i == count) return fail("--dir needs a folder");
      arguments.folder.place = words[i];
    } else if (word.starts_with("-") || !arguments.profile.empty()) {
      return fail(fmt::format("unexpected {}", shell_quote(word)), "see corral-sim --help");
    } else {
      arguments.profile = word;
    }
  }
  if (arguments.list || arguments.help) return arguments;
  if (arguments.profile.empty()) return fail("no machine named", "see corral-sim --list");
  if (i + 1 >= count) return fail("no command", "put -- and the command behind the machine's name");
  arguments.command = words + i + 1;
  return arguments;
}

std::string own_folder() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path().string();
}

int list_profiles() {
  const auto names = list_folder(own_folder() + "/profiles");
  if (!names) {
    fmt::print(stderr, "corral-sim: {}\n", names.error().what);
    return kNoSetup;
  }
  for (const std::string& name : *names) {
    const auto text = read_file(own_folder() + "/profiles/" + name);
    const auto profile = nlohmann::json::parse(text ? *text : "", nullptr, false);
    const bool has_about =
        profile.is_object() && profile.contains("about") && profile["about"].is_string();
    fmt::print("{:10} {}\n", std::filesystem::path(name).stem().string(),
               has_about ? profile["about"].get<std::string>() : "");
  }
  return 0;
}

Result<void> set_up(Arguments& arguments) {
  const bool is_path = arguments.profile.contains('/');
  const std::string path =
      is_path ? arguments.profile
              : fmt::format("{}/profiles/{}.json", own_folder(), arguments.profile);
  const auto text = read_file(path);
  if (!text)
    return fail(text.error().what, "corral-sim --list names the machines there are",
                text.error().sys);
  auto profile = parse_profile(*text);
  if (!profile) return fail(fmt::format("{}: {}", path, profile.error().what));
  if (const char* decay = std::getenv("CORRAL_SIM_DECAY_S")) {
    profile->state->decay_ns = static_cast<std::int64_t>(std::strtod(decay, nullptr) * 1e9);
  }
  arguments.folder.name = std::filesystem::path(path).stem().string();
  arguments.folder.libraries = own_folder();
  arguments.folder.profile_text = *text;
  CORRAL_TRY(const std::string folder, make_folder(*profile, arguments.folder));
  setenv("CORRAL_SIM", folder.c_str(), 1);
  setenv("CORRAL_SIM_FAST", "1", 0);
  const char* libraries = std::getenv("LD_LIBRARY_PATH");
  const bool more = libraries != nullptr && *libraries != '\0';
  setenv("LD_LIBRARY_PATH", (folder + "/lib" + (more ? std::string(":") + libraries : "")).c_str(),
         1);
  return {};
}

int complain(const Error& error, int code) {
  fmt::print(stderr, "corral-sim: {}{}{}\n", printable(error.what),
             error.hint.empty() ? "" : "\n  ", error.hint);
  return code;
}

int run(int count, char** words) {
  auto arguments = parse(count, words);
  if (!arguments) return complain(arguments.error(), kUsage);
  if (arguments->help) {
    fmt::print("{}", kHelp);
    return 0;
  }
  if (arguments->list) return list_profiles();
  if (const auto ready = set_up(*arguments); !ready) return complain(ready.error(), kNoSetup);
  execvp(arguments->command[0], arguments->command);
  const int reason = errno;
  return complain(
      Error{std::string(arguments->command[0]) + ": " + std::strerror(reason), {}, reason},
      reason == ENOENT ? kNoCommand : kCannotExecute);
}

}  // namespace
}  // namespace corral::sim

int main(int count, char** words) { return corral::sim::run(count, words); }

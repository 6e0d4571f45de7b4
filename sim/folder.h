// SPDX-License-Identifier: Apache-2.0
// The folder that stands for a simulated machine: device nodes, /proc/driver/nvidia, /sys, the
// libraries and the shared state.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "profile.h"

namespace corral::sim {

struct FolderOptions {
  std::string name;                  // of the profile, for the folder's name
  std::optional<std::string> place;  // a folder to make it in, instead of the usual one
  std::string libraries;             // the folder with libcuda.so.1 and libnvidia-ml.so.1
  bool old_nvml = false;             // the NVML without the newer functions
  bool keep = false;                 // later starts leave it
  std::string profile_text;          // a copy goes into the folder
};

// Makes the folder and returns its path. On the way, folders whose owner is gone are removed.
//
// Where: `place`; else /run/corral-sim or /var/lib/corral-sim as root and
// ${XDG_RUNTIME_DIR:-$HOME/.cache}/corral-sim as a user. Never below /tmp or /dev/shm: a Landlock
// domain that refuses one node must spell out every folder above it, and a folder spelled out so
// takes no new files; jobs need new files in those two.
Result<std::string> make_folder(const Profile& profile, const FolderOptions& options);

}  // namespace corral::sim

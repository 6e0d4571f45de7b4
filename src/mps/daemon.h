// SPDX-License-Identifier: Apache-2.0
// The MPS daemons that are there: those that Corral started, by their records, and all others by
// /proc.
//
//   BASE/GPU-…/pipe         CUDA_MPS_PIPE_DIRECTORY of daemon and clients
//             /log          CUDA_MPS_LOG_DIRECTORY
//             /daemon.json  {"schema": 1, "boot_id": "…", "gpu": "GPU-…", "pid": 4711,
//                            "start_ticks": 123456, "enforced": "cgroup"}
//   BASE/GPU-….lock         held while that daemon is started or stopped
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "gpu/machine.h"
#include "host/root.h"

namespace corral::mps {

struct Folder {
  std::string path;  // BASE/GPU-…

  std::string pipe() const { return path + "/pipe"; }
  std::string log() const { return path + "/log"; }
  std::string record() const { return path + "/daemon.json"; }
  std::string lock() const { return path + ".lock"; }
};

// Of a daemon on a machine whose only GPU is its own.
constexpr std::string_view kNoOtherGpu = "no other GPU";

struct Record {
  std::string boot_id;  // of /proc/sys/kernel/random/boot_id
  std::string gpu;      // UUID
  pid_t pid = 0;        // of the daemon, in the pid namespace of who started it
  std::uint64_t start_ticks = 0;
  // What confines it to that GPU: Plan::enforced, or kNoOtherGpu.
  std::string enforced;

  bool operator==(const Record&) const = default;
};

std::string record_text(const Record& record);
// Errors say what is missing or wrong.
Result<Record> parse_record(std::string_view text);

// Where this user's daemons are, and after them root's, which serve every user: the runtime folder
// or /tmp, and /run; inside the folder of a simulated machine. `runtime` is $XDG_RUNTIME_DIR, null
// where unset. The first one is where a daemon is started.
std::vector<std::string> base_folders(const gpu::Machine& machine, uid_t uid, const char* runtime);
Folder folder_of(const std::string& base, const std::string& gpu_uuid);

// A daemon that Corral started.
struct Daemon {
  Folder folder;
  Record record;
  uid_t uid = 0;       // of its record
  bool alive = false;  // false: it was killed, and its files are left
};

// nullopt where there is no record. Errors: it cannot be read, is no record, or somebody else than
// root and the caller could have written it.
Result<std::optional<Daemon>> look(const Folder& folder);

// "confined to it by cgroup", "NOT confined to it": of its GPU, for people.
std::string confinement_text(const Record& record);

// The first living one in these bases, or else a dead one.
Result<std::optional<Daemon>> find_daemon(const std::vector<std::string>& bases,
                                          const std::string& gpu_uuid);

// The living daemon of Corral's whose pipe folder that is; nullopt for any other folder.
std::optional<Daemon> daemon_behind(const std::string& pipe_folder);

// A control daemon as /proc shows it, whoever started it.
struct SeenDaemon {
  pid_t pid = 0;
  uid_t uid = 0;
  std::uint64_t start_ticks = 0;
  bool environment_known = false;              // false: it may not be read
  std::optional<std::string> pipe_folder;      // nullopt: the driver's own default
  std::optional<std::string> visible_devices;  // nullopt: not set
};
std::vector<SeenDaemon> control_daemons(const host::Root& root);

// Whether the arguments of a process are those of a control daemon, and not of somebody who asks
// one.
bool is_control_daemon(const std::vector<std::string>& arguments);

}  // namespace corral::mps

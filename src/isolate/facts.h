// SPDX-License-Identifier: Apache-2.0
// What this host offers for confinement, and what confines us already: read once, then only data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "host/mountinfo.h"
#include "host/surroundings.h"
#include "isolate/cdi.h"
#include "isolate/limits.h"

namespace corral::isolate {

// A device node, or (on the simulated machine) a regular file that stands for one.
struct Node {
  // Covered: /dev/null lies over the name, as --enforce mount of a run around ours puts it there.
  enum class Type : char { character = 'c', block = 'b', file = 'f', covered = 'n', missing = '-' };

  std::string path;
  Type type = Type::missing;
  // Device number; for a missing or covered node of a known driver the number it would have, else
  // 0:0.
  unsigned major = 0;
  unsigned minor = 0;

  bool operator==(const Node&) const = default;
};

// A cgroup hierarchy as this process sees it.
struct Hierarchy {
  std::string mount_point;  // "/sys/fs/cgroup"
  std::string folder;       // the folder of the group we are in, below mount_point
  bool writable = false;    // we may make a child group there
};

// Device programs on one group between the root of the hierarchy and ours (BPF_PROG_QUERY).
struct DevicePrograms {
  std::string folder;
  unsigned count = 0;
  std::uint32_t attach_flags = 0;  // BPF_F_ALLOW_MULTI, BPF_F_ALLOW_OVERRIDE
};

// Another name for a refused device.
struct Alias {
  enum class Kind { mount, node };  // the same inode through another mount; another inode

  std::string path;
  Kind kind = Kind::mount;
  // A folder on the way in which programs make files ("/tmp"): Landlock would have to take that
  // away. Empty when there is none.
  std::string shared_folder{};
};

struct RefusedFact {
  Node node{};
  std::vector<Alias> aliases{};
  // Whether read and write opens are refused as things stand; nullopt: not known.
  std::optional<bool> refused_now{};
  std::string shared_folder{};  // as in Alias, for the node itself
};

struct Host {
  bool root = false;           // effective uid 0
  bool cap_sys_admin = false;  // effective
  bool cap_bpf = false;
  bool cap_net_admin = false;
  unsigned landlock_abi = 0;  // 0: the kernel has none or it is switched off
  bool seccomp_filter = false;

  std::optional<Hierarchy> cgroup2;
  std::optional<Hierarchy> cgroup1_devices;
  // Why device programs are not possible on cgroup2; empty: they are.
  std::string cgroup2_trouble;
  std::vector<DevicePrograms> device_programs;  // outermost first; empty without the right to ask

  // Why mounts of the job's own are not possible, and what would help; the first is empty where
  // they are. Tried for a request that may use them only.
  std::string mount_trouble = "not tried";
  std::string mount_remedy;
  std::string driver_params;  // path of /proc/driver/nvidia/params; empty: not there

  std::vector<std::string> cgroup_mounts;  // mount points of every cgroup file system
  std::vector<std::string> unmatched_drm;  // /dev/dri nodes that belong to no GPU of the inventory
  std::vector<std::string> mps_pipes;      // folders where an MPS daemon listens to this process
  std::string docker_socket;          // a container engine's socket we may write to; empty: none
  bool alias_search_complete = true;  // false: the bounded search for second nodes hit its bound

  std::vector<RefusedFact> refused;  // in the order of the paths asked for

  std::optional<LimitFacts> limits;  // nullopt: no limit was asked for

  std::vector<host::Surrounding> surroundings;  // the container and the batch job that we are in
  host::Variables variables;                    // our environment
  std::vector<CdiDevice> cdi;  // read for a command that starts a container or the like only
};

struct Request;

// Reads the live host for this request. Only a request that refuses something makes it look at
// mounts, /dev and cgroups. Missing facilities are facts, not errors; an error means that /proc
// itself could not be read.
Result<Host> read_host_facts(const Request& request);

}  // namespace corral::isolate

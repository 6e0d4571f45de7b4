// SPDX-License-Identifier: Apache-2.0
// Which container and which batch job this process runs in, by what they leave to be read.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/root.h"

namespace corral::host {

using Variables = std::map<std::string, std::string, std::less<>>;

// From environ-like entries; those without '=' are left out, of a name given twice the first stays,
// as getenv(3) has it.
Variables read_variables(const char* const* entries);

// The value; nullopt: not set.
std::optional<std::string> find_variable(const Variables& variables, std::string_view name);

struct Surrounding {
  enum class Kind {
    docker,
    podman,
    containerd,
    kubernetes,
    lxc,
    nspawn,
    apptainer,
    other_container,  // one that systemd knows by another name
    // From here on batch systems.
    slurm,
    pbs,
    lsf
  };

  Kind kind = Kind::other_container;
  std::string name;      // for people: "Slurm job 4711", "docker container 0f3a5b7c9d1e"
  std::string evidence;  // "SLURM_JOB_ID", "/run/.containerenv", "cgroup /docker/0f3a…"
  // Batch systems: whether one of our cgroups is the job's. A variable alone may be inherited, as
  // in the shell that salloc starts on a login node.
  bool in_its_cgroup = false;
  // Containers: the bounding set holds what engines give to --privileged only.
  bool privileged = false;

  bool is_batch() const { return kind >= Kind::slurm; }
  bool operator==(const Surrounding&) const = default;
};

// Containers first, then batch systems; each kind once; empty on a plain host. What cannot be read
// is no evidence. /.dockerenv alone, in the host's own namespaces, is none either: it stays in the
// root of a machine that was made from an image.
std::vector<Surrounding> find_surroundings(const Root& root, const Variables& variables);

std::string_view kind_name(Surrounding::Kind kind);  // "docker", "slurm": for JSON

}  // namespace corral::host

// SPDX-License-Identifier: Apache-2.0
#include "host/surroundings.h"

#include <linux/capability.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "base/file.h"
#include "base/text.h"
#include "host/cgroup.h"
#include "host/mountinfo.h"

namespace corral::host {
namespace {

using Kind = Surrounding::Kind;

// What all detectors look at, read once.
struct Evidence {
  const Root& root;
  const Variables& variables;
  std::vector<CgroupEntry> groups;
  std::vector<Mount> mounts;
  bool host_namespaces = false;
  bool privileged = false;

  bool has(std::string_view path) const {
    struct stat status{};
    return ::stat(root.path(path).c_str(), &status) == 0;
  }
  std::string text(std::string_view path) const {
    return read_file(root.path(path), 1U << 16).value_or("");
  }
  std::string variable(std::string_view name) const {
    return find_variable(variables, name).value_or("");
  }
};

// Numbers that the kernel fixes for the namespaces of its start (include/linux/proc_ns.h).
bool is_first_namespace(const Root& root, std::string_view name, std::string_view number) {
  const std::string path = root.path("/proc/self/ns/" + std::string(name));
  char target[64];
  const ssize_t length = ::readlink(path.c_str(), target, sizeof target);
  if (length <= 0) return false;
  const std::string wanted = std::string(name) + ":[" + std::string(number) + "]";
  return std::string_view(target, static_cast<std::size_t>(length)) == wanted;
}

// Of a container, docker and podman leave these three out of the bounding set unless --privileged.
bool is_privileged(const Root& root) {
  const std::string status = read_file(root.path("/proc/self/status")).value_or("");
  for (const std::string_view line : split(status, '\n')) {
    if (!line.starts_with("CapBnd:")) continue;
    const auto set = parse_number<std::uint64_t>(trim(line.substr(7)), 16);
    const std::uint64_t wanted =
        1ULL << CAP_SYS_ADMIN | 1ULL << CAP_SYS_MODULE | 1ULL << CAP_SYS_RAWIO;
    return set && (*set & wanted) == wanted;
  }
  return false;
}

bool is_hex_id(std::string_view word) {
  return word.size() == 64 && word.find_first_not_of("0123456789abcdef") == word.npos;
}

// The 64 digits in "docker-0f3a….scope" or "0f3a…"; empty: none.
std::string_view id_in(std::string_view component) {
  if (component.ends_with(".scope")) component.remove_suffix(6);
  const auto dash = component.rfind('-');
  if (dash != component.npos) component.remove_prefix(dash + 1);
  return is_hex_id(component) ? component : std::string_view();
}

// The first cgroup path with `part` in it; empty: none.
std::string group_with(const Evidence& evidence, std::string_view part) {
  for (const CgroupEntry& entry : evidence.groups)
    if (entry.path.find(part) != entry.path.npos) return entry.path;
  return {};
}

std::string container_id(std::string_view path) {
  for (const std::string_view component : split(path, '/'))
    if (const auto id = id_in(component); !id.empty()) return std::string(id.substr(0, 12));
  return {};
}

// Engines mount the files that they write for a container: its host name, its resolver.
const Mount* engine_mount(const Evidence& evidence, std::string_view part) {
  for (const Mount& mount : evidence.mounts)
    if (mount.point.starts_with("/etc/") && mount.root.find(part) != mount.root.npos) return &mount;
  return nullptr;
}

Surrounding container(const Evidence& evidence, Kind kind, std::string_view what, std::string id,
                      std::string found) {
  if (!id.empty()) id.insert(0, " ");
  return {.kind = kind,
          .name = std::string(what) + id,
          .evidence = std::move(found),
          .privileged = evidence.privileged};
}

std::optional<Surrounding> kubernetes(const Evidence& e) {
  constexpr std::string_view kAccount = "/run/secrets/kubernetes.io";
  constexpr std::string_view kAccountOld = "/var/run/secrets/kubernetes.io";
  const std::string group = group_with(e, "kubepods");
  std::string found;
  if (!group.empty())
    found = "cgroup " + group;
  else if (e.has(kAccount))
    found = kAccount;
  else if (e.has(kAccountOld))
    found = kAccountOld;
  else if (!e.host_namespaces && !e.variable("KUBERNETES_SERVICE_HOST").empty())
    found = "KUBERNETES_SERVICE_HOST";
  else
    return std::nullopt;
  return container(e, Kind::kubernetes, "Kubernetes pod", e.variable("HOSTNAME"), found);
}

// key="value" lines, as podman writes them.
std::string quoted_value(std::string_view text, std::string_view key) {
  for (const std::string_view line : split(text, '\n'))
    if (line.starts_with(key) && line.substr(key.size()).starts_with("=\"") &&
        line.ends_with('"') && line.size() >= key.size() + 3)
      return std::string(line.substr(key.size() + 2, line.size() - key.size() - 3));
  return {};
}

std::optional<Surrounding> podman(const Evidence& e) {
  constexpr std::string_view kFile = "/run/.containerenv";
  if (e.has(kFile)) {
    const std::string text = e.text(kFile);
    std::string id = quoted_value(text, "name");
    if (id.empty()) id = quoted_value(text, "id").substr(0, 12);
    return container(e, Kind::podman, "podman container", std::move(id), std::string(kFile));
  }
  const std::string group = group_with(e, "libpod-");
  if (group.empty()) return std::nullopt;
  return container(e, Kind::podman, "podman container", container_id(group), "cgroup " + group);
}

std::optional<Surrounding> docker(const Evidence& e) {
  constexpr std::string_view kFile = "/.dockerenv";
  if (const Mount* mount = engine_mount(e, "/docker/containers/"))
    return container(e, Kind::docker, "docker container", container_id(mount->root),
                     mount->point + " is mounted from " + mount->root);
  for (const std::string_view part : {"/docker/", "/docker-"}) {
    const std::string group = group_with(e, part);
    if (const std::string id = container_id(group); !id.empty())
      return container(e, Kind::docker, "docker container", id, "cgroup " + group);
  }
  if (e.host_namespaces || !e.has(kFile)) return std::nullopt;
  return container(e, Kind::docker, "docker container", {}, std::string(kFile));
}

std::optional<Surrounding> containerd(const Evidence& e) {
  if (const Mount* mount = engine_mount(e, "/nerdctl/"))
    return container(e, Kind::containerd, "containerd container", container_id(mount->root),
                     mount->point + " is mounted from " + mount->root);
  const std::string group = group_with(e, "containerd");
  const std::string id = container_id(group);
  if (id.empty()) return std::nullopt;
  return container(e, Kind::containerd, "containerd container", id, "cgroup " + group);
}

std::optional<Surrounding> lxc(const Evidence& e) {
  for (const std::string_view part : {"/lxc.payload", "/lxc/"})
    if (const std::string group = group_with(e, part); !group.empty())
      return container(e, Kind::lxc, "LXC container", {}, "cgroup " + group);
  for (const std::string_view file : {"/dev/.lxc", "/dev/lxd/sock", "/dev/incus/sock"})
    if (e.has(file)) return container(e, Kind::lxc, "LXC container", {}, std::string(file));
  return std::nullopt;
}

std::optional<Surrounding> apptainer(const Evidence& e) {
  for (const std::string_view name : {"APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"})
    if (const std::string image = e.variable(name); !image.empty())
      return container(e, Kind::apptainer, "Apptainer container", image, std::string(name));
  if (!e.has("/.singularity.d")) return std::nullopt;
  return container(e, Kind::apptainer, "Apptainer container", {}, "/.singularity.d");
}

// systemd's own convention (https://systemd.io/CONTAINER_INTERFACE): engines tell the first process
// their name, and systemd writes it down; the variable reaches the first process and often others.
std::optional<Surrounding> by_convention(const Evidence& e) {
  constexpr std::string_view kFiles[] = {"/run/systemd/container", "/run/host/container-manager"};
  std::string found = "variable container";
  std::string name = e.host_namespaces ? "" : e.variable("container");
  for (const std::string_view file : kFiles)
    if (name.empty()) {
      name = trim(e.text(file));
      found = file;
    }
  if (name.empty()) return std::nullopt;
  struct Known {
    std::string_view name;
    Kind kind;
    std::string_view what;
  };
  constexpr Known kKnown[] = {{"docker", Kind::docker, "docker container"},
                              {"podman", Kind::podman, "podman container"},
                              {"lxc", Kind::lxc, "LXC container"},
                              {"lxc-libvirt", Kind::lxc, "LXC container"},
                              {"systemd-nspawn", Kind::nspawn, "systemd-nspawn container"}};
  const auto known = std::ranges::find(kKnown, name, &Known::name);
  if (known != std::end(kKnown))
    return container(e, known->kind, known->what, {}, found + " = " + name);
  return container(e, Kind::other_container, "container", {}, found + " = " + name);
}

// The job's number in a path such as /slurm/uid_1000/job_4711/step_0 or
// /system.slice/slurmstepd.scope/job_4711.
bool is_group_of_job(const Evidence& e, std::string_view system, std::string_view job) {
  const std::string folder = "/job_" + std::string(job);
  return std::ranges::any_of(e.groups, [&](const CgroupEntry& entry) {
    const auto at = entry.path.find(folder);
    if (at == entry.path.npos || entry.path.find(system) >= at) return false;
    const auto end = at + folder.size();
    return end == entry.path.size() || entry.path[end] == '/';
  });
}

std::optional<Surrounding> slurm(const Evidence& e) {
  const std::string job = e.variable("SLURM_JOB_ID");
  if (job.empty()) return std::nullopt;
  return Surrounding{.kind = Kind::slurm,
                     .name = "Slurm job " + job,
                     .evidence = "SLURM_JOB_ID",
                     .in_its_cgroup = is_group_of_job(e, "slurm", job)};
}

std::optional<Surrounding> named_by(const Evidence& e, std::string_view name, Kind kind,
                                    std::string_view system) {
  const std::string job = e.variable(name);
  if (job.empty()) return std::nullopt;
  return Surrounding{.kind = kind,
                     .name = std::string(system) + " job " + job,
                     .evidence = std::string(name),
                     .in_its_cgroup = !group_with(e, job).empty()};
}

}  // namespace

Variables read_variables(const char* const* entries) {
  Variables variables;
  for (; *entries != nullptr; ++entries) {
    const std::string_view entry = *entries;
    const auto equals = entry.find('=');
    if (equals != entry.npos) variables.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return variables;
}

std::optional<std::string> find_variable(const Variables& variables, std::string_view name) {
  const auto found = variables.find(name);
  if (found == variables.end()) return std::nullopt;
  return found->second;
}

std::string_view kind_name(Surrounding::Kind kind) {
  switch (kind) {
    case Kind::docker:
      return "docker";
    case Kind::podman:
      return "podman";
    case Kind::containerd:
      return "containerd";
    case Kind::kubernetes:
      return "kubernetes";
    case Kind::lxc:
      return "lxc";
    case Kind::nspawn:
      return "systemd-nspawn";
    case Kind::apptainer:
      return "apptainer";
    case Kind::other_container:
      return "container";
    case Kind::slurm:
      return "slurm";
    case Kind::pbs:
      return "pbs";
    case Kind::lsf:
      return "lsf";
  }
  return {};
}

std::vector<Surrounding> find_surroundings(const Root& root, const Variables& variables) {
  const Evidence evidence{.root = root,
                          .variables = variables,
                          .groups = read_cgroup(root).value_or(std::vector<CgroupEntry>{}),
                          .mounts = read_mountinfo(root).value_or(std::vector<Mount>{}),
                          .host_namespaces = is_first_namespace(root, "pid", "4026531836") &&
                                             is_first_namespace(root, "uts", "4026531838") &&
                                             is_first_namespace(root, "ipc", "4026531839"),
                          .privileged = is_privileged(root)};
  std::vector<Surrounding> found;
  // An Apptainer container may run inside another one. Of the rest the first that fits speaks: a
  // pod's container is also one of containerd's.
  for (const auto detect : {kubernetes, podman, docker, containerd, lxc, by_convention})
    if (auto one = detect(evidence)) {
      found.push_back(*std::move(one));
      break;
    }
  if (auto one = apptainer(evidence)) found.push_back(*std::move(one));
  if (auto one = slurm(evidence)) found.push_back(*std::move(one));
  if (auto one = named_by(evidence, "PBS_JOBID", Kind::pbs, "PBS")) found.push_back(*one);
  if (auto one = named_by(evidence, "LSB_JOBID", Kind::lsf, "LSF")) found.push_back(*one);
  return found;
}

}  // namespace corral::host

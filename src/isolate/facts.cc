// SPDX-License-Identifier: Apache-2.0
#include "isolate/facts.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>

#include "base/fd.h"
#include "base/file.h"
#include "gpu/machine.h"
#include "host/cgroup.h"
#include "isolate/agents.h"
#include "isolate/aliases.h"
#include "isolate/cgroup2.h"
#include "isolate/landlock.h"
#include "isolate/mount.h"
#include "isolate/plan.h"
#include "isolate/seccomp.h"
#include "isolate/selftest.h"

extern char** environ;

namespace corral::isolate {
namespace {

constexpr int kCapMknod = 27;
constexpr int kCapSysAdmin = 21;
constexpr int kCapNetAdmin = 12;
constexpr int kCapBpf = 39;

bool has_capability(int number) {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3]{};
  if (::syscall(SYS_capget, &header, data) != 0) return false;
  return (data[number / 32].effective >> (number % 32) & 1U) != 0;
}

void read_rights(Host& host) {
  host.root = ::geteuid() == 0;
  host.cap_sys_admin = has_capability(kCapSysAdmin);
  host.cap_bpf = has_capability(kCapBpf);
  host.cap_net_admin = has_capability(kCapNetAdmin);
  host.landlock_abi = landlock_abi();
  host.seccomp_filter = filter_available();
}

Node read_node(const Wanted& wanted) {
  Node node{.path = wanted.path};
  char resolved[PATH_MAX];
  if (::realpath(wanted.path.c_str(), resolved) == nullptr) return wanted.known.value_or(node);
  node.path = resolved;
  struct stat status{};
  if (::lstat(resolved, &status) != 0) return node;
  if (is_cover(status) && node.path != "/dev/null") {
    if (wanted.known) node = *wanted.known;
    node.path = resolved;
    node.type = Node::Type::covered;
    return node;
  }
  if (S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode)) {
    node.type = S_ISCHR(status.st_mode) ? Node::Type::character : Node::Type::block;
    node.major = major(status.st_rdev);
    node.minor = minor(status.st_rdev);
  } else if (S_ISREG(status.st_mode)) {
    node.type = Node::Type::file;
  }
  return node;
}

// Without opening the node where that can be told: opening wakes a GPU. access(2) asks the file's
// permissions and the device rules of the cgroup, but not Landlock, under which a process of an
// ordinary start cannot be without no_new_privs.
std::optional<bool> is_refused_now(const Node& node, const Host& host) {
  if (node.type == Node::Type::missing) {
    if (has_capability(kCapMknod)) return std::nullopt;
    return true;
  }
  if (node.type == Node::Type::covered) return true;
  if (::getuid() != ::geteuid()) return std::nullopt;
  const auto refuses = [&](int mode) {
    return ::access(node.path.c_str(), mode) != 0 && (errno == EACCES || errno == EPERM);
  };
  if (refuses(R_OK) && refuses(W_OK)) return true;
  if (host.landlock_abi == 0 || ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) return false;
  return refuses_every_open(node.path);
}

std::optional<Hierarchy> hierarchy(const std::optional<host::CgroupPlace>& place) {
  if (!place) return std::nullopt;
  return Hierarchy{.mount_point = place->mount_point,
                   .folder = place->folder,
                   .writable = ::access(place->folder.c_str(), W_OK) == 0 &&
                               // Opened for real: inside a tight confinement Landlock says no.
                               open_file(place->folder + "/cgroup.procs", O_WRONLY).has_value()};
}

Result<void> read_cgroups(Host& host, const std::vector<host::Mount>& mounts) {
  for (const host::Mount& mount : mounts)
    if (mount.type == "cgroup2" || mount.type == "cgroup")
      host.cgroup_mounts.push_back(mount.point);
  CORRAL_TRY(const auto entries, host::read_cgroup(host::Root()));
  host.cgroup2 = hierarchy(host::locate_v2(entries, mounts));
  host.cgroup1_devices = hierarchy(host::locate_v1(entries, mounts, "devices"));
  if (!host.cgroup2) {
    host.cgroup2_trouble = "cgroup v2 is not mounted, or not down to the group we are in";
    return {};
  }
  if (!host.cap_sys_admin && !(host.cap_bpf && host.cap_net_admin)) {
    host.cgroup2_trouble = "it needs root, or CAP_BPF and CAP_NET_ADMIN";
    return {};
  }
  auto programs = query_device_programs(host.cgroup2->mount_point, host.cgroup2->folder);
  if (programs)
    host.device_programs = *std::move(programs);
  else
    host.cgroup2_trouble = programs.error().what;
  return {};
}

bool wants_paths(const Request& request, const Host& host) {
  return request.tight || request.asks_for(Method::landlock) || request.asks_for(Method::mount) ||
         (request.asks_for(Method::automatic) && (!host.cap_sys_admin || host.landlock_abi == 0));
}

// Named, or the last resort of auto.
bool may_use_mounts(const Request& request, const Host& host) {
  if (request.asks_for(Method::mount)) return true;
  const bool landlock =
      host.landlock_abi != 0 && (request.inventory.simulated ||
                                 std::ranges::all_of(host.refused, [](const RefusedFact& fact) {
                                   return fact.shared_folder.empty();
                                 }));
  return request.asks_for(Method::automatic) && !request.tight && !landlock;
}

void read_mount_facts(Host& host) {
  if (const auto tried = try_covered_mounts(!host.cap_sys_admin); !tried) {
    const Error reason = explain_mount_trouble(tried.error(), read_namespace_settings(host::Root()),
                                               !host.cap_sys_admin);
    host.mount_trouble = reason.what;
    host.mount_remedy = reason.hint;
    return;
  }
  host.mount_trouble.clear();
  const std::string params = gpu::find_machine().hardware.path("/proc/driver/nvidia/params");
  if (::access(params.c_str(), R_OK) == 0) host.driver_params = params;
}

void read_aliases(Host& host, const std::vector<host::Mount>& mounts) {
  std::vector<Node> nodes;
  for (const RefusedFact& fact : host.refused) nodes.push_back(fact.node);
  const SecondNodes second = find_second_nodes(nodes, mounts);
  host.alias_search_complete = second.complete;
  for (std::size_t i = 0; i < host.refused.size(); ++i) {
    RefusedFact& fact = host.refused[i];
    // The names of what covers a node are /dev/null's.
    if (fact.node.type == Node::Type::covered) continue;
    std::vector<std::string> by_mount = mount_names(fact.node.path, mounts);
    // A second mount of a file system is searched too: its names are mounts, not nodes.
    std::vector<std::string> others = second.paths[i];
    std::erase_if(others, [&](const std::string& p) {
      return std::ranges::find(by_mount, p) != by_mount.end();
    });
    for (const std::string& path : std::vector(others))
      for (std::string& name : mount_names(path, mounts))
        if (name != fact.node.path && std::ranges::find(others, name) == others.end() &&
            std::ranges::find(by_mount, name) == by_mount.end())
          by_mount.push_back(std::move(name));
    for (std::string& path : by_mount)
      fact.aliases.push_back(
          {.path = path, .kind = Alias::Kind::mount, .shared_folder = shared_folder_above(path)});
    for (std::string& path : others)
      fact.aliases.push_back(
          {.path = path, .kind = Alias::Kind::node, .shared_folder = shared_folder_above(path)});
  }
}

std::vector<std::string> unmatched_drm_nodes(const gpu::Inventory& inventory) {
  std::vector<std::string> unmatched;
  const auto names = list_folder("/dev/dri");
  if (!names) return unmatched;
  for (const std::string& name : *names) {
    const std::string path = "/dev/dri/" + name;
    const bool known = std::ranges::any_of(inventory.gpus, [&](const gpu::Gpu& g) {
      return std::ranges::find(g.drm_nodes, path) != g.drm_nodes.end();
    });
    if (!known && (name.starts_with("card") || name.starts_with("renderD")))
      unmatched.push_back(path);
  }
  return unmatched;
}

// Whether somebody listens at a Unix socket that this process may connect to, without disturbing
// him: the kernel looks for the listener first, and at the type of the socket then, which no daemon
// has chosen so.
bool somebody_listens(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  std::ranges::copy(path, address.sun_path);
  const Fd probe(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe) return ::access(path.c_str(), W_OK) == 0;
  return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
         errno == EPROTOTYPE;
}

// Where a CUDA program looks for an MPS daemon by itself: the variable, as it is or as `given` to
// the job, or the defaults of the two dialects.
std::vector<std::string> listening_mps_pipes(const std::string& own, const std::string& given) {
  const char* set = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  std::vector<std::string> folders = {"/tmp/nvidia-mps", "/run/nvidia-mps"};
  if (set != nullptr && *set != '\0') folders.insert(folders.begin(), set);
  if (!given.empty()) folders.insert(folders.begin(), given);
  std::vector<std::string> listening;
  for (const std::string& folder : folders)
    if (folder != own && std::ranges::find(listening, folder) == listening.end() &&
        somebody_listens(folder + "/control"))
      listening.push_back(folder);
  return listening;
}

std::string writable_docker_socket() {
  for (const char* path :
       {"/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock"})
    if (::access(path, W_OK) == 0) return path;
  return {};
}

}  // namespace

Result<Host> read_host_facts(const Request& request) {
  Host host;
  read_rights(host);
  if (request.limits.any()) {
    CORRAL_TRY(host.limits, read_limit_facts(request.hardware));
  }
  host.variables = host::read_variables(environ);
  host.surroundings = host::find_surroundings(host::Root(), host.variables);
  if (!find_agents(request.command).empty()) host.cdi = read_cdi(request.hardware);
  const std::vector<Wanted> wanted = wanted_refusals(request);
  if (wanted.empty()) return host;

  CORRAL_TRY(const std::vector<host::Mount> mounts, host::read_mountinfo(host::Root()));
  CORRAL_CHECK(read_cgroups(host, mounts));
  for (const Wanted& w : wanted) {
    RefusedFact fact{.node = read_node(w)};
    fact.refused_now = is_refused_now(fact.node, host);
    fact.shared_folder = shared_folder_above(fact.node.path);
    host.refused.push_back(std::move(fact));
  }
  if (wants_paths(request, host)) read_aliases(host, mounts);
  if (may_use_mounts(request, host)) read_mount_facts(host);
  host.unmatched_drm = unmatched_drm_nodes(request.inventory);
  host.mps_pipes = listening_mps_pipes(request.own_mps_pipe, request.open_mps_pipe);
  host.docker_socket = writable_docker_socket();
  return host;
}

}  // namespace corral::isolate

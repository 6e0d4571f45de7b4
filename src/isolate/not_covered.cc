// SPDX-License-Identifier: Apache-2.0
#include "isolate/not_covered.h"

#include <algorithm>

#include "base/text.h"

namespace corral::isolate {
namespace {

void name_root(Plan& plan, const Host& host) {
  if (!host.root || plan.layers.empty()) return;
  if (plan.tight)
    plan.general_limits.emplace_back(
        "the job runs as root: the ways out that are known are closed, but root can do more "
        "(kernel "
        "modules, /proc/sys)");
  else if (plan.has(Layer::landlock) || plan.user_namespaces)
    plan.general_limits.emplace_back("the job runs as root, which can do more than open files");
  else if (plan.has(Layer::mount))
    plan.general_limits.emplace_back(
        "the job runs as root: it may not mount, make nodes or load modules, but what root does by "
        "writing files (kernel settings, programs that others start) stays");
  else
    plan.general_limits.emplace_back(
        "the job runs as root and could leave its cgroup; --tight closes the ways that are known");
}

void name_processes_outside(Plan& plan, const Request& request, const Host& host) {
  const bool cgroup = plan.has(Layer::cgroup2) || plan.has(Layer::cgroup1);
  const bool mount = plan.has(Layer::mount);
  const bool fenced =
      plan.has(Layer::landlock) || plan.has(Layer::landlock_scope) || plan.user_namespaces;
  if ((cgroup || mount) && !fenced)
    plan.not_covered.push_back(
        "another process of the same user could be made to open a refused node (ptrace): the fence "
        "against that needs Landlock ABI 6, this kernel has " +
        std::to_string(host.landlock_abi));
  for (const std::string& pipe : host.mps_pipes) {
    std::string hole = "the MPS server behind " + printable(pipe) +
                       " opens every GPU that it was given, once the job is its client";
    if (request.allowed.gpus.size() == 1) {
      const std::string gpu = std::to_string(request.allowed.gpus.front());
      hole += "; one that is confined: corral mps start --gpu " + gpu +
              ", then corral run --gpus " + gpu + " --mps 100% …";
    }
    plan.not_covered.push_back(std::move(hole));
    plan.open_ways.push_back("the MPS server at " + printable(pipe));
  }
  if (plan.tight && !host.docker_socket.empty())
    plan.not_covered.push_back("the container engine at " + host.docker_socket +
                               " would open any node for the job");
}

void name_nodes(Plan& plan, const Request& request, const Host& host) {
  const bool by_path_only =
      plan.has(Layer::landlock) && !plan.has(Layer::cgroup2) && !plan.has(Layer::cgroup1);
  if (by_path_only && !plan.has(Layer::seccomp))
    plan.not_covered.emplace_back(
        "an open in mode 3 passes Landlock, and this kernel has no seccomp filters: accidents are "
        "stopped, intent is not");
  if (by_path_only)
    plan.general_limits.emplace_back(
        "a mount or node that somebody outside makes after the start opens what it leads to: "
        "Landlock refuses the names that were there, only a cgroup refuses the number");
  const bool by_mount_only = plan.has(Layer::mount) && !plan.has(Layer::landlock) &&
                             !plan.has(Layer::cgroup2) && !plan.has(Layer::cgroup1);
  if (by_mount_only)
    plan.general_limits.emplace_back(
        "a node that is removed and made again outside (udev, a driver that is loaded anew) loses "
        "its cover, and a node that is made later never had one: with Landlock beside it "
        "the "
        "first is refused, with a cgroup both");
  if ((by_path_only || by_mount_only) && !host.alias_search_complete)
    plan.general_limits.emplace_back(
        "a second node of the same number deep outside /dev, which only root can make, was not "
        "searched for");
  const bool lacks_drm = request.allowed.requested &&
                         std::ranges::any_of(request.inventory.gpus, [&](const gpu::Gpu& gpu) {
                           return gpu.drm_nodes.empty() &&
                                  std::ranges::any_of(plan.refused, [&](const RefusedNode& r) {
                                    return r.node.path == gpu.node;
                                  });
                         });
  if (lacks_drm && !host.unmatched_drm.empty() && !plan.layers.empty())
    plan.not_covered.push_back(join_and(host.unmatched_drm) +
                               " could not be matched to a GPU and stay open");
  const bool refuses_mig = std::ranges::any_of(
      plan.refused, [](const RefusedNode& r) { return r.why.starts_with("capability of "); });
  if (refuses_mig && host.cap_sys_admin && !plan.has(Layer::mount))
    plan.not_covered.emplace_back(
        "the driver gives every MIG instance of an open GPU to a process with CAP_SYS_ADMIN");
}

}  // namespace

void name_what_is_not_covered(Plan& plan, const Request& request, const Host& host) {
  if (plan.enforced == "none") {
    plan.general_limits.emplace_back(
        "nothing is enforced: the variables are set, and the job may change them");
    return;
  }
  name_root(plan, host);
  name_processes_outside(plan, request, host);
  name_nodes(plan, request, host);
}

}  // namespace corral::isolate

// SPDX-License-Identifier: Apache-2.0
#include "isolate/plan.h"

#include <linux/bpf.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/text.h"
#include "isolate/not_covered.h"

namespace corral::isolate {
namespace {

constexpr unsigned kNvidiaMajor = 195;  // fixed in the kernel's list of device numbers
constexpr unsigned kScopeAbi = 6;

// In the order in which the child enters them.
constexpr Method kMethods[] = {Method::automatic, Method::cgroup, Method::mount, Method::landlock,
                               Method::env};

bool contains(const auto& range, const auto& value) {
  return std::ranges::find(range, value) != std::ranges::end(range);
}

// The instances of a GPU that are given; empty for a GPU that is given whole, or not at all.
std::vector<const gpu::MigInstance*> given_instances(const Selection& selection,
                                                     const gpu::Gpu& gpu) {
  std::vector<const gpu::MigInstance*> given;
  for (const gpu::MigRef& ref : selection.mig)
    if (ref.gpu == gpu.index && ref.instance < gpu.mig.size())
      given.push_back(&gpu.mig[ref.instance]);
  return given;
}

bool is_given(const Selection& selection, const gpu::Gpu& gpu) {
  return contains(selection.gpus, gpu.index);
}

std::string gpu_text(const gpu::Gpu& gpu) { return "GPU " + std::to_string(gpu.index); }

void want(std::vector<Wanted>& wanted, Wanted item) {
  if (std::ranges::find(wanted, item.path, &Wanted::path) == wanted.end())
    wanted.push_back(std::move(item));
}

// All nodes of a GPU but those that its given instances need.
void want_nodes(const gpu::Gpu& gpu, const std::string& name,
                const std::vector<const gpu::MigInstance*>& given, std::vector<Wanted>& wanted) {
  if (given.empty() && !gpu.node.empty())
    want(wanted, {.path = gpu.node,
                  .why = name,
                  .known = Node{.path = gpu.node,
                                .type = Node::Type::missing,
                                .major = kNvidiaMajor,
                                .minor = gpu.minor.value_or(0)}});
  for (const std::string& path : gpu.drm_nodes)
    want(wanted, {.path = path, .why = "DRM node of " + name, .known = {}});
  // Compute instances of one GPU instance share its capability node.
  std::vector<std::string> needed;
  for (const gpu::MigInstance* instance : given)
    needed.insert(needed.end(), instance->capability_nodes.begin(),
                  instance->capability_nodes.end());
  for (const gpu::MigInstance& instance : gpu.mig)
    for (const std::string& path : instance.capability_nodes)
      if (!contains(needed, path))
        want(wanted, {.path = path, .why = "capability of " + instance.uuid, .known = {}});
}

void want_gpu(const Selection& selection, const gpu::Gpu& gpu, std::vector<Wanted>& wanted) {
  const std::vector<const gpu::MigInstance*> given = given_instances(selection, gpu);
  if (is_given(selection, gpu) && given.empty()) return;
  want_nodes(gpu, gpu_text(gpu), given, wanted);
}

std::vector<AllowedNode> allowed_nodes(const Request& request) {
  std::vector<AllowedNode> allowed;
  if (!request.allowed.requested) return allowed;
  for (const gpu::Gpu& gpu : request.inventory.gpus) {
    if (!is_given(request.allowed, gpu)) continue;
    if (!gpu.node.empty()) allowed.push_back({.path = gpu.node, .why = gpu_text(gpu)});
    for (const gpu::MigInstance* instance : given_instances(request.allowed, gpu))
      for (const std::string& path : instance->capability_nodes)
        allowed.push_back({.path = path, .why = "capability of " + instance->uuid});
  }
  return allowed;
}

Result<std::vector<Setting>> environment(const Request& request) {
  if (!request.allowed.requested) return std::vector<Setting>{};
  CORRAL_TRY(const std::string visible, gpu::visible_devices(request.allowed, request.inventory));
  return std::vector<Setting>{
      {.name = "CUDA_VISIBLE_DEVICES", .value = visible},
      {.name = "CUDA_DEVICE_ORDER", .value = "PCI_BUS_ID"},
      {.name = "NVIDIA_VISIBLE_DEVICES", .value = request.allowed.empty() ? "none" : visible},
  };
}

// Every refused GPU needs a node to refuse, and every --refuse must name one.
Result<void> check_nodes(const Request& request, const std::vector<Wanted>& wanted,
                         const Host& host) {
  for (const gpu::Gpu& gpu : request.inventory.gpus)
    if (request.allowed.requested && gpu.node.empty() && !is_given(request.allowed, gpu))
      return fail(gpu_text(gpu) + ": its device node is not known, so it cannot be refused",
                  "check that /proc/driver/nvidia/gpus is readable");
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Node& node = host.refused[i].node;
    const bool asked = contains(request.refuse_paths, wanted[i].path);
    if (asked && node.type == Node::Type::missing && !wanted[i].known)
      return fail("--refuse " + wanted[i].path + ": there is no device node of that name",
                  "give the path of a character or block device, e.g. /dev/kvm");
    if (node.type == Node::Type::file && !request.inventory.simulated)
      return fail(wanted[i].path + ": a regular file, not a device node");
    for (const AllowedNode& allowed : allowed_nodes(request))
      if (allowed.path == node.path)
        return fail("--refuse " + wanted[i].path + ": it is the node of " + allowed.why +
                        ", which --gpus gives to the job",
                    "leave one of the two out");
  }
  return {};
}

std::optional<std::string> file_node(const Host& host) {
  for (const RefusedFact& fact : host.refused)
    if (fact.node.type == Node::Type::file) return fact.node.path;
  return std::nullopt;
}

// Why device programs are not possible; empty: they are.
std::string cgroup2_trouble(const Host& host) {
  if (!host.cgroup2_trouble.empty()) return host.cgroup2_trouble;
  if (!host.cgroup2) return "cgroup v2 is not mounted";
  if (!host.cgroup2->writable) return host.cgroup2->folder + " is not writable";
  for (const DevicePrograms& programs : host.device_programs) {
    if ((programs.attach_flags & BPF_F_ALLOW_MULTI) != 0) continue;
    if ((programs.attach_flags & BPF_F_ALLOW_OVERRIDE) != 0)
      return "the device program on " + programs.folder +
             " is marked overridable: ours would switch it off";
    return "the device program on " + programs.folder + " forbids further ones";
  }
  return {};
}

std::string cgroup1_trouble(const Host& host) {
  if (!host.cgroup1_devices) return "the v1 devices controller is not mounted";
  if (!host.cap_sys_admin) return "it needs root";
  if (!host.cgroup1_devices->writable) return host.cgroup1_devices->folder + " is not writable";
  return {};
}

std::string cgroup_trouble(const Host& host) {
  if (const auto file = file_node(host))
    return *file + " is a file of the simulated machine, and device rules only know numbers";
  const std::string v2 = cgroup2_trouble(host);
  const std::string v1 = cgroup1_trouble(host);
  return v2.empty() || v1.empty() ? std::string() : "v2: " + v2 + "; v1: " + v1;
}

std::string landlock_trouble(const Request& request, const Host& host) {
  if (host.landlock_abi == 0) return "this kernel has no Landlock, or not switched on (5.13, lsm=)";
  for (const RefusedFact& fact : host.refused)
    if (!fact.shared_folder.empty() && !request.inventory.simulated)
      return fact.node.path + " lies below " + fact.shared_folder +
             ": programs could not make files there any more";
  return {};
}

bool all_refused_now(const Host& host) {
  return std::ranges::all_of(
      host.refused, [](const RefusedFact& fact) { return fact.refused_now.value_or(false); });
}

void add_cgroup(Plan& plan, const Host& host) {
  const bool v2 = cgroup2_trouble(host).empty();
  const bool v1 = cgroup1_trouble(host).empty();
  plan.layers.push_back(v2 ? Layer::cgroup2 : Layer::cgroup1);
  if (v2) plan.cgroup2_parent = host.cgroup2->folder;
  if (v1) plan.cgroup1_parent = host.cgroup1_devices->folder;
  if (!v2) plan.notes.push_back("cgroup v1 in place of v2: " + cgroup2_trouble(host));
}

// Landlock and the filter belong together: alone Landlock stops accidents only.
Result<void> add_landlock(Plan& plan, const Host& host) {
  plan.layers.push_back(Layer::landlock);
  if (host.seccomp_filter) {
    plan.layers.push_back(Layer::seccomp);
  } else if (plan.tight) {
    return fail(
        "--tight: this kernel has no seccomp filters, without which Landlock lets an open "
        "in mode 3 pass",
        "leave --tight out for a confinement that stops accidents");
  }
  if (host.landlock_abi < 2)
    plan.notes.push_back("Landlock ABI 1 refuses to move files from one folder to another");
  return {};
}

// Fences ptrace and pidfd_getfd, by which a process outside could be made to open the node.
// A user namespace is such a fence already.
void add_scope(Plan& plan, const Host& host) {
  if (host.landlock_abi >= kScopeAbi && !plan.user_namespaces)
    plan.layers.push_back(Layer::landlock_scope);
}

void add_mounts(Plan& plan, const Host& host) {
  plan.layers.push_back(Layer::mount);
  plan.user_namespaces = !host.cap_sys_admin;
  plan.driver_params = host.driver_params;
  plan.notes.emplace_back(
      plan.user_namespaces
          ? "a user namespace: sudo and other setuid programs get no rights in the job, and what "
            "belongs to others shows as nobody's"
          : "the job may not mount, make device nodes or trace other users' processes, though it "
            "may be root");
  plan.notes.emplace_back("mounts that are made outside after the start do not show in the job");
}

std::unexpected<Error> mount_failure(const Host& host, const std::string& otherwise) {
  std::string hint = host.mount_remedy;
  if (!otherwise.empty()) hint += (hint.empty() ? "" : "; or ") + otherwise;
  return fail("--enforce mount is not available: " + host.mount_trouble, hint);
}

Result<void> choose_tight(Plan& plan, const Request& request, const Host& host) {
  const std::string trouble = cgroup_trouble(host);
  if (request.asks_for(Method::env))
    return fail("--tight with --enforce env: the variable alone enforces nothing",
                "leave --enforce out");
  if (request.asks_for(Method::cgroup) && !trouble.empty())
    return fail("--enforce cgroup is not available: " + trouble,
                "leave --enforce out: --tight then uses Landlock and the seccomp filter");
  if (request.asks_for(Method::mount) && !host.mount_trouble.empty())
    return mount_failure(host, "leave it out: --tight uses Landlock and the seccomp filter");
  if (const std::string landlock = landlock_trouble(request, host); !landlock.empty())
    return fail("--tight needs Landlock: " + landlock,
                trouble.empty() ? "leave --tight out: the cgroup alone is available" : "");
  const bool cgroup = request.asks_for(Method::automatic) || request.asks_for(Method::cgroup);
  if (cgroup && trouble.empty()) add_cgroup(plan, host);
  if (request.asks_for(Method::mount)) add_mounts(plan, host);
  return add_landlock(plan, host);
}

// In place of a method that is not available.
std::string would_work(const Request& request, const Host& host) {
  if (cgroup_trouble(host).empty()) return "--enforce cgroup would work here";
  if (landlock_trouble(request, host).empty()) return "--enforce landlock would work here";
  if (host.mount_trouble.empty()) return "--enforce mount would work here";
  return {};
}

Result<void> check_listed(const Request& request, const Host& host) {
  if (const std::string trouble = cgroup_trouble(host);
      request.asks_for(Method::cgroup) && !trouble.empty())
    return fail("--enforce cgroup is not available: " + trouble, would_work(request, host));
  if (request.asks_for(Method::mount) && !host.mount_trouble.empty())
    return mount_failure(host, would_work(request, host));
  if (const std::string trouble = landlock_trouble(request, host);
      request.asks_for(Method::landlock) && !trouble.empty())
    return fail("--enforce landlock is not available: " + trouble, would_work(request, host));
  return {};
}

// Each must be possible: one that is silently left out would be missed in the wrong moment.
Result<void> choose_listed(Plan& plan, const Request& request, const Host& host) {
  CORRAL_CHECK(check_listed(request, host));
  if (request.asks_for(Method::cgroup)) add_cgroup(plan, host);
  if (request.asks_for(Method::mount)) add_mounts(plan, host);
  if (request.asks_for(Method::landlock)) return add_landlock(plan, host);
  add_scope(plan, host);
  return {};
}

Result<void> choose_automatic(Plan& plan, const Request& request, const Host& host) {
  if (all_refused_now(host)) {
    plan.enforced = "existing";
    return {};
  }
  const std::string cgroup = cgroup_trouble(host);
  const std::string landlock = landlock_trouble(request, host);
  if (cgroup.empty()) {
    add_cgroup(plan, host);
    add_scope(plan, host);
    return {};
  }
  if (landlock.empty()) return add_landlock(plan, host);
  // Last, for what it costs a job: a kernel before 5.13 or without Landlock in its lsm= list, or a
  // node that Landlock cannot refuse where it lies.
  if (host.mount_trouble.empty()) {
    add_mounts(plan, host);
    add_scope(plan, host);
    return {};
  }
  const std::string reasons =
      "cgroup: " + cgroup + "; Landlock: " + landlock + "; mount: " + host.mount_trouble;
  if (request.allow_unenforced) {
    plan.notes.push_back("nothing is enforced: " + reasons);
    return {};
  }
  return fail("nothing here can keep the job off the other GPUs. " + reasons,
              "run it as root, or with --allow-unenforced to set the variables only");
}

Result<void> choose_layers(Plan& plan, const Request& request, const Host& host) {
  if (request.tight) return choose_tight(plan, request, host);
  if (request.asks_for(Method::automatic)) return choose_automatic(plan, request, host);
  if (!request.asks_for(Method::env)) return choose_listed(plan, request, host);
  if (!request.refuse_paths.empty())
    return fail("--refuse with --enforce env: a variable refuses no node",
                "leave --enforce out: the kernel then refuses it");
  return {};
}

bool has_cgroup(const Plan& plan) { return plan.has(Layer::cgroup2) || plan.has(Layer::cgroup1); }

std::string enforced_text(const Plan& plan) {
  std::vector<std::string> parts;
  if (has_cgroup(plan)) parts.emplace_back("cgroup");
  if (plan.has(Layer::mount)) parts.emplace_back("mount");
  if (plan.has(Layer::landlock)) parts.emplace_back("landlock");
  if (plan.has(Layer::seccomp)) parts.emplace_back("seccomp");
  return join(parts, "+");
}

std::string methods_text(const Request& request) {
  std::vector<std::string> names;
  for (const Method method : request.methods) names.emplace_back(method_name(method));
  return join(names, ",");
}

// Asked for without a selection: it would silently do nothing.
Result<void> check_asked(const Request& request, const Plan& plan) {
  if (plan.requested) return {};
  const bool named = !request.asks_for(Method::automatic) && !request.asks_for(Method::env);
  if (!request.tight && !named) return {};
  return fail((request.tight ? std::string("--tight") : "--enforce " + methods_text(request)) +
                  ": there is nothing to refuse",
              "say which GPUs the job gets (--gpus) or which nodes it may not open (--refuse)");
}

// A name below /tmp cannot be refused by path without taking /tmp away. It can be by number, and a
// mount can cover it.
Result<void> add_alias(Plan& plan, const Node& node, const Alias& alias) {
  RefusedNode refused{
      .node = node,
      .why =
          (alias.kind == Alias::Kind::mount ? "second mount of " : "second node of ") + node.path};
  refused.node.path = alias.path;
  if (plan.has(Layer::landlock) && !alias.shared_folder.empty()) {
    refused.by_path = false;
    const bool otherwise = has_cgroup(plan) || plan.has(Layer::mount);
    if (!otherwise && plan.tight)
      return fail("--tight: " + alias.path + " is another name of " + node.path +
                      ", and Landlock could refuse it only by taking away " + alias.shared_folder,
                  "remove it, or run as root, where device rules refuse the number");
    if (!otherwise)
      plan.not_covered.push_back(alias.path + " is another name of " + node.path +
                                 " and stays open: Landlock could refuse it only by taking away " +
                                 alias.shared_folder);
  }
  plan.refused.push_back(std::move(refused));
  return {};
}

std::string and_more(std::size_t count) {
  return count == 0 ? "" : " and " + std::to_string(count) + " more";
}

Result<void> add_refused(Plan& plan, const std::vector<Wanted>& wanted, const Host& host) {
  std::map<std::string, std::vector<std::string>> nodes_below;  // by folder, in the plan's order
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const RefusedFact& fact = host.refused[i];
    if (std::ranges::any_of(plan.refused,
                            [&](const RefusedNode& r) { return r.node.path == fact.node.path; }))
      continue;
    plan.refused.push_back({.node = fact.node, .why = wanted[i].why});
    if (!fact.shared_folder.empty()) nodes_below[fact.shared_folder].push_back(fact.node.path);
  }
  if (plan.has(Layer::landlock))
    for (const auto& [folder, nodes] : nodes_below)
      plan.notes.push_back("the job cannot make files directly in " + folder + ", above " +
                           nodes.front() + and_more(nodes.size() - 1));
  for (const RefusedFact& fact : host.refused)
    for (const Alias& alias : fact.aliases)
      if (std::ranges::none_of(plan.refused,
                               [&](const RefusedNode& r) { return r.node.path == alias.path; }))
        CORRAL_CHECK(add_alias(plan, fact.node, alias));
  return {};
}

Result<void> add_limits(Plan& plan, const Request& request, const Host& host) {
  if (!host.limits) return {};
  CORRAL_TRY(PlannedLimits planned, plan_limits(request, *host.limits));
  plan.limits = std::move(planned.limits);
  plan.v2_place = std::move(planned.v2_place);
  plan.manager = std::move(planned.manager);
  plan.notes = std::move(planned.notes);
  return {};
}

bool in_limit_group(const Limit& limit) {
  return limit.way == LimitWay::cgroup1 || limit.way == LimitWay::cgroup2;
}

// By writing to cgroup.procs outside, or, on v2, by starting a process there (clone3), which asks
// no Landlock rule.
bool can_leave(const Plan& plan, const Limit& limit) {
  if (!in_limit_group(limit) || plan.read_only.empty()) return true;
  return limit.way == LimitWay::cgroup2 && !plan.filter_cgroup_exits;
}

}  // namespace

bool Plan::has(Layer layer) const { return contains(layers, layer); }

bool Request::asks_for(Method method) const { return contains(methods, method); }

bool is_held_uncovered(const Plan& plan, const RefusedNode& node) {
  if (has_cgroup(plan) || plan.enforced == "existing") return true;
  return plan.has(Layer::landlock) && node.by_path;
}

bool is_held(const Plan& plan, const RefusedNode& node) {
  return plan.has(Layer::mount) || is_held_uncovered(plan, node);
}

Result<std::vector<Method>> parse_methods(std::string_view text) {
  std::vector<Method> methods;
  for (const std::string_view name : split(text, ',')) {
    const auto known = std::ranges::find(kMethods, name, method_name);
    if (known == std::end(kMethods))
      return fail(
          "--enforce \"" + printable(text) +
          "\": expected auto, env, or some of cgroup, mount and landlock with commas between "
          "them");
    if (contains(methods, *known))
      return fail("--enforce \"" + printable(text) + "\": " + std::string(name) +
                  " is named twice");
    methods.push_back(*known);
  }
  for (const Method alone : {Method::automatic, Method::env})
    if (contains(methods, alone) && methods.size() > 1)
      return fail("--enforce \"" + printable(text) + "\": " + std::string(method_name(alone)) +
                      " stands alone",
                  alone == Method::env ? "the variables are always set" : "leave auto out");
  std::ranges::sort(methods, {}, [](Method m) { return std::ranges::find(kMethods, m); });
  return methods;
}

std::string_view method_name(Method method) {
  switch (method) {
    case Method::automatic:
      return "auto";
    case Method::cgroup:
      return "cgroup";
    case Method::landlock:
      return "landlock";
    case Method::mount:
      return "mount";
    case Method::env:
      return "env";
  }
  return {};
}

std::vector<Wanted> wanted_refusals(const Request& request) {
  std::vector<Wanted> wanted;
  if (request.allowed.requested) {
    for (const gpu::Gpu& gpu : request.inventory.gpus) want_gpu(request.allowed, gpu, wanted);
    // Closed already, but perhaps only by a file's mode, which the job may be able to change.
    for (const gpu::Gpu& gpu : request.inventory.hidden)
      want_nodes(gpu, "the closed GPU at " + gpu.pci.text(), {}, wanted);
  }
  for (const std::string& path : request.refuse_paths)
    want(wanted, {.path = path, .why = "--refuse", .known = {}});
  return wanted;
}

Result<Plan> make_plan(const Request& request, const Host& host) {
  Plan plan{.requested = request.allowed.requested || !request.refuse_paths.empty(),
            .tight = request.tight,
            .as_root = host.root,
            .landlock_abi = host.landlock_abi};
  CORRAL_CHECK(check_asked(request, plan));
  plan.allowed = allowed_nodes(request);
  CORRAL_TRY(plan.environment, environment(request));
  CORRAL_CHECK(add_limits(plan, request, host));
  const std::vector<Wanted> wanted = wanted_refusals(request);
  CORRAL_CHECK(check_nodes(request, wanted, host));
  if (wanted.empty()) return plan;

  if (!request.by_hand) CORRAL_CHECK(choose_layers(plan, request, host));
  if (!plan.layers.empty()) plan.enforced = enforced_text(plan);
  CORRAL_CHECK(add_refused(plan, wanted, host));
  plan.no_new_privs = plan.has(Layer::landlock) || plan.has(Layer::seccomp) ||
                      (plan.has(Layer::landlock_scope) && !host.cap_sys_admin);
  // A group with limits may be one that was delegated to a user, who can leave it like root.
  const bool in_groups = std::ranges::any_of(plan.limits, in_limit_group);
  plan.filter_cgroup_exits = plan.tight && (in_groups || (host.root && has_cgroup(plan)));
  // Root's writes there do more than leave a group: the kernel runs a v1 release_agent outside.
  if (plan.has(Layer::landlock) && (host.root || in_groups)) plan.read_only = host.cgroup_mounts;
  for (Limit& limit : plan.limits) limit.job_can_leave = can_leave(plan, limit);
  name_what_is_not_covered(plan, request, host);
  return plan;
}

Result<Plan> plan_for(const Request& request) {
  CORRAL_TRY(const Host host, read_host_facts(request));
  CORRAL_TRY(Plan plan, make_plan(request, host));
  if (!request.by_hand) add_advice(plan, request, host);
  return plan;
}

}  // namespace corral::isolate

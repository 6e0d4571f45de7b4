// SPDX-License-Identifier: Apache-2.0
// Requests and hosts as the tests of the plan make them up: two GPUs, as root and as a user.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "isolate/plan.h"

namespace corral::isolate {

inline gpu::Gpu gpu(unsigned index) {
  gpu::Gpu g;
  g.index = index;
  g.uuid = "GPU-" + std::to_string(index) + "aaa";
  g.minor = index;
  g.node = "/dev/nvidia" + std::to_string(index);
  g.drm_nodes = {"/dev/dri/card" + std::to_string(index)};
  return g;
}

inline Request two_gpus_give_1() {
  Request request;
  request.inventory.gpus = {gpu(0), gpu(1)};
  request.allowed.requested = true;
  request.allowed.gpus = {1};
  request.command = {"python3", "train.py"};
  return request;
}

inline RefusedFact fact(const Wanted& wanted, unsigned major = 195, unsigned minor = 0) {
  return {
      .node = {.path = wanted.path, .type = Node::Type::character, .major = major, .minor = minor},
      .refused_now = false};
}

// A host with everything, as root: the facts that a request on it would read.
inline Host root_host(const Request& request) {
  Host host;
  host.root = host.cap_sys_admin = host.cap_bpf = host.cap_net_admin = true;
  host.landlock_abi = 7;
  host.seccomp_filter = true;
  host.cgroup2 = Hierarchy{.mount_point = "/cg2", .folder = "/cg2/session", .writable = true};
  host.cgroup1_devices = Hierarchy{.mount_point = "/cg1", .folder = "/cg1/a", .writable = true};
  host.cgroup_mounts = {"/cg2", "/cg1"};
  host.mount_trouble.clear();
  for (const Wanted& wanted : wanted_refusals(request)) host.refused.push_back(fact(wanted));
  return host;
}

inline Host user_host(const Request& request) {
  Host host = root_host(request);
  host.root = host.cap_sys_admin = host.cap_bpf = host.cap_net_admin = false;
  host.cgroup2_trouble = "it needs root, or CAP_BPF and CAP_NET_ADMIN";
  host.cgroup2->writable = host.cgroup1_devices->writable = false;
  return host;
}

inline Plan planned(const Request& request, const Host& host) {
  auto plan = make_plan(request, host);
  EXPECT_TRUE(plan) << plan.error().what;
  return plan.value_or(Plan{});
}

inline std::string refusal(const Request& request, const Host& host) {
  const auto plan = make_plan(request, host);
  return plan ? "planned: " + plan->enforced : plan.error().what + " | " + plan.error().hint;
}

inline bool says(const std::vector<std::string>& lines, std::string_view part) {
  return std::ranges::any_of(
      lines, [&](const std::string& line) { return line.find(part) != std::string::npos; });
}

inline std::vector<std::string> paths(const Plan& plan) {
  std::vector<std::string> out;
  for (const RefusedNode& refused : plan.refused) out.push_back(refused.node.path);
  return out;
}

inline std::string value_of(const Plan& plan, std::string_view name) {
  for (const Setting& setting : plan.environment)
    if (setting.name == name) return setting.value;
  return "(not set)";
}

using Layers = std::vector<Layer>;

}  // namespace corral::isolate

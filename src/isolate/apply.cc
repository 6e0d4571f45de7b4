// SPDX-License-Identifier: Apache-2.0
#include "isolate/apply.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <optional>
#include <utility>

#include "isolate/cgroup1.h"
#include "isolate/cgroup2.h"
#include "isolate/inherited.h"
#include "isolate/landlock.h"
#include "isolate/limit_groups.h"
#include "isolate/mount.h"
#include "isolate/seccomp.h"
#include "isolate/selftest.h"

namespace corral::isolate {
namespace {

std::vector<Node> nodes_of(const Plan& plan) {
  std::vector<Node> nodes;
  for (const RefusedNode& refused : plan.refused) nodes.push_back(refused.node);
  return nodes;
}

Result<CgroupFolder> make_cgroup2(const Plan& plan) {
  remove_stale_cgroups(plan.cgroup2_parent);
  CORRAL_TRY(CgroupFolder group, CgroupFolder::create(plan.cgroup2_parent));
  CORRAL_CHECK(attach_device_program(group.path(), nodes_of(plan)));
  return group;
}

Result<CgroupFolder> make_cgroup1(const Plan& plan) {
  remove_stale_cgroups(plan.cgroup1_parent);
  CORRAL_TRY(CgroupFolder group, CgroupFolder::create(plan.cgroup1_parent));
  CORRAL_CHECK(deny_devices(group.path(), nodes_of(plan)));
  return group;
}

// v2 first; a hybrid host has v1 to fall back on, and then the plan says so.
Result<void> prepare_cgroup(Prepared& prepared) {
  Plan& plan = prepared.plan;
  if (plan.has(Layer::cgroup2)) {
    Result<CgroupFolder> group = make_cgroup2(plan);
    if (group) {
      prepared.cgroup2 = *std::move(group);
      return {};
    }
    if (plan.cgroup1_parent.empty()) return std::unexpected(group.error());
    std::ranges::replace(plan.layers, Layer::cgroup2, Layer::cgroup1);
    plan.notes.push_back("cgroup v1 in place of v2: " + group.error().what);
  }
  if (plan.has(Layer::cgroup1)) {
    CORRAL_TRY(prepared.cgroup1, make_cgroup1(plan));
  }
  return {};
}

std::vector<RefusedNode> held_nodes(const Plan& plan) {
  std::vector<RefusedNode> held;
  std::ranges::copy_if(plan.refused, std::back_inserter(held),
                       [&](const RefusedNode& node) { return is_held(plan, node); });
  return held;
}

LandlockRules landlock_rules(const Plan& plan) {
  LandlockRules rules;
  // A covered name leads to /dev/null, which must stay open.
  for (const RefusedNode& refused : plan.refused)
    if (refused.by_path && refused.node.type != Node::Type::covered)
      rules.refused.push_back(refused.node.path);
  rules.read_only = plan.read_only;
  return rules;
}

MountCover mount_cover(const Plan& plan) {
  MountCover cover{
      .nodes = {}, .driver_params = plan.driver_params, .user_namespaces = plan.user_namespaces};
  for (const RefusedNode& refused : plan.refused)
    if (refused.node.type != Node::Type::missing) cover.nodes.push_back(refused.node.path);
  return cover;
}

// Those that a layer below the mounts refuses too: it is tried as well.
std::vector<UncoveredNode> held_below_covers(const Plan& plan) {
  std::vector<RefusedNode> held;
  std::ranges::copy_if(plan.refused, std::back_inserter(held),
                       [&](const RefusedNode& node) { return is_held_uncovered(plan, node); });
  return keep_uncovered(held);
}

// The job's groups that are made already.
std::vector<const CgroupFolder*> groups_of(const Prepared& prepared) {
  std::vector<const CgroupFolder*> groups;
  if (prepared.cgroup2) groups.push_back(&prepared.cgroup2);
  if (prepared.cgroup1) groups.push_back(&prepared.cgroup1);
  for (const CgroupFolder& group : prepared.limit_groups) groups.push_back(&group);
  return groups;
}

// A process is in one group of a hierarchy: one limit may share the group of another, or of the
// device rules.
std::string group_below(const Prepared& prepared, const std::string& parent) {
  for (const CgroupFolder* group : groups_of(prepared))
    if (group->path().substr(0, group->path().rfind('/')) == parent) return group->path();
  return {};
}

Result<void> prepare_limits(Prepared& prepared) {
  for (const Limit& limit : prepared.plan.limits) {
    if (limit.parent.empty()) continue;
    std::string group = group_below(prepared, limit.parent);
    if (group.empty()) {
      remove_stale_cgroups(limit.parent);
      CORRAL_TRY(CgroupFolder made, CgroupFolder::create(limit.parent));
      group = made.path();
      prepared.limit_groups.push_back(std::move(made));
    }
    CORRAL_CHECK(write_limit(group, limit));
  }
  return {};
}

}  // namespace

Result<Prepared> prepare(const Plan& plan) {
  Prepared prepared{.plan = plan};
  CORRAL_TRY(prepared.settled, take_place(prepared.plan));
  CORRAL_CHECK(prepare_cgroup(prepared));
  CORRAL_CHECK(prepare_limits(prepared));
  if (plan.has(Layer::landlock)) {
    CORRAL_TRY(prepared.landlock_ruleset, build_landlock(landlock_rules(plan), plan.landlock_abi));
  } else if (plan.has(Layer::landlock_scope)) {
    CORRAL_TRY(prepared.landlock_ruleset, build_landlock_scope());
  }
  if (plan.has(Layer::seccomp))
    prepared.filter = build_filter({.cgroup_exits = plan.filter_cgroup_exits});
  return prepared;
}

Result<pid_t> fork_confined(const Prepared& prepared) {
  if (prepared.cgroup2) return prepared.cgroup2.fork_into();
  for (const CgroupFolder& group : prepared.limit_groups)
    if (prepared.plan.v2_place && group.path().starts_with(prepared.plan.v2_place->folder + "/"))
      return group.fork_into();
  const pid_t pid = ::fork();
  if (pid < 0) return fail_sys("fork", errno);
  return pid;
}

Result<void> enter(const Prepared& prepared) {
  const Plan& plan = prepared.plan;
  // Moves into every group, also into those of the device rules.
  CORRAL_CHECK(enter_limits(plan.limits, groups_of(prepared)));
  // Unenforced: the nodes stay open, and there is nothing to test.
  if (plan.enforced == "none") return {};
  // A folder that was opened outside shows what lies below a cover. (The working folder does not:
  // the kernel takes it along into the new namespace.)
  const bool thorough = plan.tight || plan.has(Layer::mount);
  CORRAL_CHECK(close_inherited(plan.refused, thorough));
  std::vector<UncoveredNode> uncovered;
  // Before Landlock, in whose domains nothing can be mounted.
  if (plan.has(Layer::mount)) {
    uncovered = held_below_covers(plan);
    CORRAL_CHECK(enter_covered_mounts(mount_cover(plan)));
  }
  if (plan.tight) {
    CORRAL_TRY(const WorkingFolder folder, working_folder());
    CORRAL_CHECK(enter_again(folder));
  }
  if (plan.no_new_privs && ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return fail_sys("no_new_privs", errno);
  if (prepared.landlock_ruleset) CORRAL_CHECK(enter_landlock(prepared.landlock_ruleset.get()));
  if (!prepared.filter.empty()) CORRAL_CHECK(enter_filter(prepared.filter));
  if (plan.has(Layer::mount) && !plan.user_namespaces) CORRAL_CHECK(drop_mount_rights());
  CORRAL_CHECK(self_test_uncovered(uncovered));
  return self_test(held_nodes(plan), plan.allowed);
}

std::vector<std::string> limit_events(const Prepared& prepared) {
  std::vector<std::string> events;
  for (const Limit& limit : prepared.plan.limits) {
    if (limit.parent.empty()) continue;
    const auto of_limit = limit_events(group_below(prepared, limit.parent), limit);
    events.insert(events.end(), of_limit.begin(), of_limit.end());
  }
  return events;
}

Result<std::vector<pid_t>> release(Prepared& prepared) {
  std::vector<CgroupFolder*> groups = {&prepared.cgroup2, &prepared.cgroup1};
  for (CgroupFolder& group : prepared.limit_groups) groups.push_back(&group);
  std::vector<pid_t> left;
  std::optional<Error> error;
  for (CgroupFolder* group : groups) {
    const auto still_in = group->remove();
    if (still_in)
      left.insert(left.end(), still_in->begin(), still_in->end());
    else
      error = still_in.error();
  }
  if (error) return std::unexpected(*error);
  std::ranges::sort(left);
  const auto repeated = std::ranges::unique(left);
  left.erase(repeated.begin(), repeated.end());
  return left;
}

}  // namespace corral::isolate

// SPDX-License-Identifier: Apache-2.0
#include "isolate/settle.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "host/cgroup.h"
#include "host/proc.h"
#include "isolate/systemd.h"

namespace corral::isolate {
namespace {

// A child that ends or is made while we look makes another look worthwhile.
constexpr int kLooks = 5;

std::string subtree_control(const std::string& group) { return group + "/cgroup.subtree_control"; }

bool is_on(const std::string& group, const std::string& controller) {
  const auto on = host::read_controllers(subtree_control(group));
  return on && std::ranges::find(*on, controller) != on->end();
}

void switch_off(const std::string& group, const std::vector<std::string>& controllers) {
  for (const std::string& controller : controllers)
    (void)write_existing(subtree_control(group), "-" + controller);
}

Result<std::vector<pid_t>> processes_in(const std::string& group) {
  CORRAL_TRY(const std::string text, read_file(group + "/cgroup.procs"));
  std::vector<pid_t> pids;
  for (const std::string_view line : split(text, '\n'))
    if (const auto pid = parse_number<pid_t>(line)) pids.push_back(*pid);
  return pids;
}

bool is_ours(pid_t pid) {
  if (pid == ::getpid()) return true;
  const auto below = host::descendants(host::Root(), ::getpid());
  return below && std::ranges::find(*below, pid) != below->end();
}

Result<void> move(pid_t pid, const std::string& group) {
  auto moved = write_existing(group + "/cgroup.procs", std::to_string(pid));
  // One that has ended needs no moving.
  if (!moved && moved.error().sys == ESRCH) return {};
  return moved;
}

// Whether somebody's limits are in a group below that is not `own`.
bool has_other_jobs(const std::string& folder, const std::string& own) {
  const auto names = list_folder(folder);
  if (!names) return true;
  return std::ranges::any_of(*names, [&](const std::string& name) {
    return name.starts_with("corral-") && folder + "/" + name != own;
  });
}

// A group that has processes and passes a threaded controller on is no place for memory, and none
// of its groups is for processes. Where there are no groups, the controllers serve nobody.
void forget_left_controllers(const std::string& folder) {
  const auto names = list_folder(folder);
  const auto on = host::read_controllers(subtree_control(folder));
  if (!names || !on) return;
  const bool has_groups = std::ranges::any_of(*names, [&](const std::string& name) {
    return ::access((folder + "/" + name + "/cgroup.procs").c_str(), F_OK) == 0;
  });
  if (has_groups) return;
  switch_off(folder, *on);
}

bool needs_group(const Limit& limit) {
  return limit.way == LimitWay::cgroup2 &&
         (limit.kind == LimitKind::memory || limit.kind == LimitKind::pids);
}

std::vector<std::string> controllers_of(const Plan& plan) {
  std::vector<std::string> names;
  for (const Limit& limit : plan.limits) {
    if (limit.way != LimitWay::cgroup2) continue;
    std::string name(needs_group(limit) ? limit_name(limit.kind) : "cpuset");
    if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
  }
  return names;
}

Result<void> go_without(Plan& plan, const Error& error) {
  for (const Limit& limit : plan.limits)
    if (needs_group(limit))
      return fail(fmt::format("--{} cannot be held here: {}", limit_name(limit.kind), error.what),
                  error.hint, error.sys);
  for (Limit& limit : plan.limits) {
    if (limit.way != LimitWay::cgroup2) continue;
    limit.way = LimitWay::task;
    limit.parent.clear();
    limit.scope.clear();
    limit.job_can_leave = true;
    plan.notes.push_back(fmt::format("{} by {}, for lack of a group: {}", limit_value(limit),
                                     limit_holder(limit), error.what));
  }
  plan.v2_place.reset();
  return {};
}

Result<std::string> make_scope(const Manager& manager) {
  CORRAL_TRY(const host::ProcessStat self, host::read_stat(host::Root(), ::getpid()));
  return enter_scope(manager, {.name = scope_name(self.pid, self.start_ticks),
                               .description = "corral run: a job with limits",
                               .pid = ::getpid()});
}

Result<Settled> take(Plan& plan) {
  V2Place& place = *plan.v2_place;
  if (place.step == FirstStep::scope) {
    CORRAL_TRY(place.folder, make_scope(plan.manager));
  }
  if (place.step == FirstStep::enable) {
    CORRAL_TRY(const auto was_off, pass_on(place.folder, controllers_of(plan)));
    if (!was_off.empty())
      plan.notes.push_back(fmt::format(
          "switched on in the root group {}, and left on: {}, which limits nobody by itself",
          place.folder, join(was_off, ", ")));
  }
  if (place.step == FirstStep::settle || place.step == FirstStep::scope)
    return Settled::create(place.folder, controllers_of(plan));
  return Settled();
}

}  // namespace

Result<std::vector<std::string>> pass_on(const std::string& group,
                                         const std::vector<std::string>& controllers) {
  std::vector<std::string> was_off;
  for (const std::string& controller : controllers) {
    if (is_on(group, controller)) continue;
    if (auto written = write_existing(subtree_control(group), "+" + controller); !written) {
      switch_off(group, was_off);
      return fail(fmt::format("{} does not pass the {} controller on: {}", group, controller,
                              written.error().what),
                  written.error().hint, written.error().sys);
    }
    was_off.push_back(controller);
  }
  return was_off;
}

Settled::Settled(Settled&& other) noexcept
    : folder_(std::exchange(other.folder_, {})),
      own_(std::move(other.own_)),
      passed_on_(std::exchange(other.passed_on_, {})),
      maker_(std::exchange(other.maker_, 0)) {}

Settled& Settled::operator=(Settled&& other) noexcept {
  std::swap(folder_, other.folder_);
  std::swap(own_, other.own_);
  std::swap(passed_on_, other.passed_on_);
  std::swap(maker_, other.maker_);
  return *this;
}

Settled::~Settled() {
  if (maker_ == ::getpid()) move_back();
}

Result<void> Settled::move_in() {
  for (int look = 0; look < kLooks; ++look) {
    CORRAL_TRY(const std::vector<pid_t> pids, processes_in(folder_));
    if (pids.empty()) return {};
    for (const pid_t pid : pids) {
      if (!is_ours(pid))
        return fail(
            fmt::format("{} cannot pass controllers on: process {} is in it, which is not "
                        "ours to move",
                        folder_, pid));
      CORRAL_CHECK(move(pid, own_.path()));
    }
  }
  return fail(folder_ + ": processes go on to appear in it");
}

void Settled::move_back() {
  if (has_other_jobs(folder_, own_.path())) return;
  switch_off(folder_, passed_on_);
  if (const auto pids = processes_in(own_.path()))
    for (const pid_t pid : *pids) (void)move(pid, folder_);
  (void)own_.remove();
}

Result<Settled> Settled::create(const std::string& folder,
                                const std::vector<std::string>& controllers) {
  remove_stale_cgroups(folder);
  forget_left_controllers(folder);
  Settled settled;
  settled.folder_ = folder;
  CORRAL_TRY(settled.own_, CgroupFolder::create(folder));
  settled.maker_ = ::getpid();
  CORRAL_CHECK(settled.move_in());
  CORRAL_TRY(settled.passed_on_, pass_on(folder, controllers));
  return settled;
}

Result<Settled> take_place(Plan& plan) {
  if (!plan.v2_place) return Settled();
  Result<Settled> taken = take(plan);
  if (!taken) {
    CORRAL_CHECK(go_without(plan, taken.error()));
    return Settled();
  }
  const V2Place& place = *plan.v2_place;
  for (Limit& limit : plan.limits) {
    if (limit.way != LimitWay::cgroup2) continue;
    limit.parent = place.folder;
    if (place.step == FirstStep::scope)
      limit.scope = "scope " + place.folder.substr(place.folder.rfind('/') + 1);
  }
  // A process is in one v2 group: that of the device rules is the same.
  if (plan.has(Layer::cgroup2)) plan.cgroup2_parent = place.folder;
  return taken;
}

}  // namespace corral::isolate

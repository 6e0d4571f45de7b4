// SPDX-License-Identifier: Apache-2.0
// systemd's managers: whether one can be asked for a transient scope, and the asking.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "host/root.h"

namespace corral::isolate {

// The manager that may make a scope for us: the system's for root, else the user's own.
struct Manager {
  std::string trouble = "systemd does not run here";  // empty: it can be asked
  bool booted = false;                                // systemd manages the cgroups of this host
  bool user = false;
  std::string bus{};                        // its socket: "/run/user/1000/bus"
  std::string slice{};                      // in which we are: "app.slice"; empty: the default one
  std::vector<std::string> controllers{};   // that a delegated scope of it will have
  std::optional<std::uint64_t> pids_max{};  // of the group that we would leave
  bool ends_at_logout = false;              // no lingering: units end with the last session

  bool operator==(const Manager&) const = default;
};

// Reads only; does not connect. A process in a service of its own is not moved out: the manager
// takes the service for ended.
Manager find_manager(const host::Root& root, uid_t uid, const std::string& runtime_folder);

struct ScopeRequest {
  std::string name;  // "corral-4711-123.scope"
  std::string description;
  pid_t pid = 0;  // that is moved into it
  std::chrono::milliseconds limit{2000};
};

// Asks for a delegated scope (StartTransientUnit of org.freedesktop.systemd1) by running busctl,
// and waits until the process is in it. Not longer than `limit`: a bus that hangs is an error like
// one that refuses. Returns the v2 folder of the scope.
Result<std::string> enter_scope(const Manager& manager, const ScopeRequest& request);

// The words of the busctl call, without the program.
std::vector<std::string> scope_call(const Manager& manager, const ScopeRequest& request);

// A name that no other process has: of a pid and its start time.
std::string scope_name(pid_t pid, std::uint64_t start_ticks);

}  // namespace corral::isolate

// SPDX-License-Identifier: Apache-2.0
// Where on cgroup v2 a job's group can have controllers: the groups that qualify, and why others do
// not. Reads only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "host/root.h"
#include "isolate/limits.h"
#include "isolate/systemd.h"

namespace corral::isolate {

// In order of preference: the group that we are in, a scope by systemd's manager, the groups above.
struct V2Places {
  std::vector<V2Place> places{};
  // What kept each of the others from it; for an error text.
  std::vector<std::string> troubles{};
};

// `as_root`: effective uid 0. An empty answer with one trouble where v2 is not mounted.
//
// The group that we are in can pass controllers on when it is the root group (cgroup-v2.rst, "No
// Internal Process Constraint"), or when it was delegated to us and holds none but us and what is
// below us. A group above can when it does so already; the job is then out of the groups between,
// so that a limit or a device program on one of them rules it out. Where systemd manages the
// hierarchy, only groups that it delegated are taken: it undoes what is done to others.
V2Places find_v2_places(const host::Root& root, const Manager& manager, bool as_root);

// What holds in that group and would not outside: "pids.max is 100". Empty: nothing, or nothing but
// `kept_file`.
std::string limit_that_holds(const host::Root& root, const std::string& folder,
                             std::string_view kept_file = {});

// Whether systemd delegated the group, or one above it up to the nearest manager's own: its
// extended attribute user.delegate or trusted.delegate (systemd 251, 236).
bool is_delegated(const host::Root& root, const std::string& mount_point,
                  const std::string& folder);

}  // namespace corral::isolate

// SPDX-License-Identifier: Apache-2.0
// What must be done before a job's group on cgroup v2 can have controllers, and the undoing of it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "isolate/cgroup_folder.h"
#include "isolate/plan.h"

namespace corral::isolate {

// Switches controllers on in the group's cgroup.subtree_control; returns those that were off.
// An error leaves it as it was.
Result<std::vector<std::string>> pass_on(const std::string& group,
                                         const std::vector<std::string>& controllers);

// A group that passes controllers on, and ourselves in a group below it, since no process may be in
// such a group. Destroying it takes both back, but only in the process that made it, and not while
// another group of a job is there: its limits would go.
class Settled {
 public:
  Settled() = default;
  Settled(Settled&& other) noexcept;
  Settled& operator=(Settled&& other) noexcept;
  Settled(const Settled&) = delete;
  Settled& operator=(const Settled&) = delete;
  ~Settled();

  // `folder`: the group that we are in. A process in it that is neither we nor below us is an
  // error: it is not moved. An error leaves everything as it was.
  static Result<Settled> create(const std::string& folder,
                                const std::vector<std::string>& controllers);

  const std::string& own_group() const { return own_.path(); }

 private:
  Result<void> move_in();
  void move_back();

  std::string folder_;
  CgroupFolder own_;
  std::vector<std::string> passed_on_;
  pid_t maker_ = 0;
};

// Parent, before any group of the job is made: takes the plan's place on v2 and names it in the
// plan. Where that fails, CPUs and memory nodes go by affinity and policy, which a note says; a
// limit that nothing else holds is an error.
Result<Settled> take_place(Plan& plan);

}  // namespace corral::isolate

// SPDX-License-Identifier: Apache-2.0
// What a user should hear before the job starts: that part of its work will be done outside of the
// confinement, and what to type for that part to keep to its GPUs.
#pragma once

#include <string>
#include <vector>

namespace corral::isolate {

struct Host;
struct Plan;
struct Request;

struct Advice {
  std::string what;       // one sentence
  std::string instead;    // what to type, with "…" for the rest of the command; may be empty
  bool leaves = false;    // work is done outside of the confinement
  std::string program{};  // of the command whose work that is: "docker run"; empty: of none

  bool operator==(const Advice&) const = default;
};

// On every program of the command that is known to hand its work out, or to fail in this
// confinement. The plan's layers must be chosen.
std::vector<Advice> advise_on_command(const Request& request, const Host& host, const Plan& plan);

// Fills plan.around and plan.advice, and adds the ways out among the advice to plan.not_covered and
// plan.open_ways.
// For a finished plan.
void add_advice(Plan& plan, const Request& request, const Host& host);

}  // namespace corral::isolate

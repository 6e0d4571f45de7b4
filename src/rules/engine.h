// SPDX-License-Identifier: Apache-2.0
// Applies every rule to the facts.
#pragma once

#include <string>
#include <vector>

#include "rules/rule.h"

namespace corral::rules {

struct Verdict {
  std::vector<Finding> findings;  // gravest first, then by id, GPU and pid
  std::vector<NotChecked> not_checked;
};

// How many findings accuse the job of having strayed: what is only a warning accuses nobody.
unsigned stray_count(const Verdict& verdict);

// Every registered rule, by id.
std::vector<const Rule*> all_rules();

// Marks the run's stray contexts (rules/expectation.h), runs the rules, and writes into
// each stray context the id of the finding that explains it.
Verdict judge(snapshot::Run& run);

}  // namespace corral::rules

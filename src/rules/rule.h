// SPDX-License-Identifier: Apache-2.0
// A rule is a pure function of the facts, in one self-registering file that also holds its texts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/registry.h"
#include "rules/finding.h"
#include "snapshot/run.h"

namespace corral::rules {

struct Outcome {
  std::vector<Finding> findings;
  // Why the rule could not be applied: missing data is never "fine". Empty: it was applied.
  std::string not_checked;
};

// What could not be judged: `id` is of the rule, or kExpectRank.
struct NotChecked {
  std::string id;
  std::string why;
};

struct Rule {
  std::string_view id;
  Severity severity = Severity::info;
  std::string_view summary;  // what it looks for, for `explain`
  std::string_view cause;
  std::string_view verify;
  std::string_view fix;
  Precedence precedence = Precedence::general;
  // A fallback sees contexts that no other rule explained, and runs after all others.
  bool fallback = false;
  Outcome (*check)(const snapshot::Run& run) = nullptr;
};

// A finding with the rule's texts; the caller adds title, evidence and what it is about.
Finding finding_of(const Rule& rule);

}  // namespace corral::rules

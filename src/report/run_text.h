// SPDX-License-Identifier: Apache-2.0
// The verdict of a run for people.
#pragma once

#include <string>

#include "rules/engine.h"
#include "snapshot/run.h"

namespace corral::report {

struct TextStyle {
  bool color = false;
  bool verbose = false;  // all findings, general limits, remarks and what was not checked too
};

// Ends with a newline. A clean run takes two or three lines.
std::string run_text(const snapshot::Run& run, const rules::Verdict& verdict, TextStyle style);

}  // namespace corral::report

// SPDX-License-Identifier: Apache-2.0
// The report of a run in JSON, schema 1 (docs/design.md section 7): fields may be added, never
// renamed.
#pragma once

#include <string>

#include "rules/engine.h"
#include "snapshot/run.h"

namespace corral::report {

// Base units with the unit in the name; unknown is null. Ends with a newline.
std::string run_json(const snapshot::Run& run, const rules::Verdict& verdict);

}  // namespace corral::report

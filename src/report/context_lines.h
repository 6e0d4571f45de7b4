// SPDX-License-Identifier: Apache-2.0
// Every context of a run in lines for people: where it is, who made it, by which call and line.
#pragma once

#include "report/run_text.h"
#include "report/text_writer.h"
#include "snapshot/run.h"

namespace corral::report {

// Strays first, then by time. Those of the same author on the same GPU share a line; of too many
// lines the rest is left to the JSON report, unless `style` is verbose. Ends with how to say what
// the job is meant to use, where that was not said.
void context_lines(const snapshot::Run& run, TextStyle style, TextWriter& writer);

}  // namespace corral::report

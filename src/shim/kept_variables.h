// SPDX-License-Identifier: Apache-2.0
// What was known when: the variables that decide which GPU a process uses, as they were before the
// driver read them, and what of them and of the working folder has changed since.
#pragma once

#include "shim/event_record.h"
#include "shim/state.h"

namespace corral::shim {

// Just before cuInit.
void keep_variables(State& state);
// All of them, for the record of cuInit, and the working folder where it is not the file header's.
void add_kept_variables(State& state, EventRecord& event);
// Those that are not what they were at cuInit, and the working folder likewise.
void add_what_changed(State& state, EventRecord& event);

// When the trace is opened, as its header tells the working folder.
uint64_t working_folder_mark();

}  // namespace corral::shim

// SPDX-License-Identifier: Apache-2.0
// The text of the user's own files that stand in a run's stacks, so that rules can read lines of
// them without touching the file system.
#pragma once

#include <sys/types.h>

#include <string>

#include "snapshot/run.h"

namespace corral::snapshot {

// Under which name Run::sources keeps a file of a Python frame of `pid`: a relative name is one
// below the process's working directory. Pure.
std::string source_key(const Run& run, pid_t pid, const std::string& file);

// Fills `run.sources` from the stacks of its contexts and inits. Only regular files of the user's
// own code with the ending .py are opened, at most 64 of at most 256 KiB each, none through a link
// in its last part. One that was changed after the job began is left out and named in
// `run.remarks`: its lines may not be the ones that ran. Frames come from the job, which may name
// any file: nothing of a file is kept that the caller could not read anyway.
void add_sources(Run& run);

}  // namespace corral::snapshot

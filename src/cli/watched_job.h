// SPDX-License-Identifier: Apache-2.0
// The life of a job that is watched: started, sampled, supervised, judged and reported. What
// confines it, if anything does, was prepared before.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "cli/observation.h"
#include "cli/status.h"
#include "cli/watch_options.h"
#include "gpu/machine.h"
#include "isolate/apply.h"
#include "launch/environment.h"
#include "launch/job.h"
#include "snapshot/run.h"

namespace corral::cli {

// Everything that is made before the job and must live until it has ended.
struct JobSetup {
  gpu::OpenedMachine machine;
  launch::Environment environment;
  Observation observation;
  std::optional<isolate::Prepared> confinement;  // nullopt: nothing is confined
  Fd report;                                     // of open_report
  snapshot::Run run;                             // what is known by now
};

// Opens --report's file, before the job: a report that cannot be written is known before it has run
// for days, and what the job puts in its place in the meantime is not written to. No file for an
// empty path and for "-".
Result<Fd> open_report(const std::string& path);

// Runs the job to its end and reports; the exit code for Corral. `inherited`: the descriptors that
// were open at Corral's start and that the job gets.
int watch_job(const WatchOptions& options, JobSetup& setup, const std::vector<int>& inherited,
              const Status& status);

// Prints the error; returns `code`.
int complain(const Error& error, int code);
// And tells the status descriptor that there will be no job.
int complain(const launch::StartError& error, const Status& status);

launch::StartError cannot_set_up(Error error);

}  // namespace corral::cli

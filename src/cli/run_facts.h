// SPDX-License-Identifier: Apache-2.0
// Puts what the parts of a run found out into one Run.
#pragma once

#include <string>
#include <vector>

#include "gpu/device.h"
#include "isolate/plan.h"
#include "launch/job.h"
#include "launch/watch.h"
#include "sample/sampler.h"
#include "snapshot/run.h"
#include "trace/reader.h"

namespace corral::cli {

// The part that is known before the job starts.
snapshot::Run planned_run(const gpu::Inventory& inventory, const isolate::Plan& plan,
                          const isolate::Selection& allowed,
                          const std::vector<std::string>& command);

// Exit code and duration; `start_ns` and `end_ns` are monotonic.
void add_end(const launch::JobEnd& end, std::int64_t start_ns, std::int64_t end_ns,
             snapshot::Run& run);

void add_samples(sample::Sampled sampled, snapshot::Run& run);

// Coverage: processes that used the driver, with or without a trace. After the traces were added.
void add_processes(const std::vector<launch::SeenProcess>& seen,
                   const std::vector<trace::ProcessTrace>& traces, snapshot::Run& run);

// Processes that outlived the job and the GPUs on which NVML listed them. After the samples
// were added.
void add_orphans(const std::vector<pid_t>& pids, snapshot::Run& run);

}  // namespace corral::cli

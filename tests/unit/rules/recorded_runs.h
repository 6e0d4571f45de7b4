// SPDX-License-Identifier: Apache-2.0
// Runs of tests/fixtures/runs: what was recorded of small jobs under torch 2.11, JAX 0.11, CuPy 14
// and Numba on two H200, with the job's source and what is to be said of it.
#pragma once

#include <string>
#include <vector>

#include "snapshot/run.h"

namespace corral::rules {

struct RecordedRun {
  snapshot::Run run;
  std::vector<std::string> findings;  // the ids that are wanted, sorted
  std::vector<std::string> culprits;  // the places that every stray's culprit is among
  std::vector<std::string> causes;    // places that some evidence must name
};

RecordedRun recorded_run(const std::string& name);
std::vector<std::string> recorded_run_names();

// A run of two GPUs by hand: GPU 1 was given.
snapshot::Run run_for_gpu_1();
// A context that pid 10 made on a GPU (with the same number in the process) on its main thread.
snapshot::Context context_on(unsigned gpu, std::vector<snapshot::PythonFrame> python,
                             std::vector<std::string> modules = {});
// The file of a package below site-packages.
std::string package(const std::string& file);

}  // namespace corral::rules

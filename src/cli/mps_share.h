// SPDX-License-Identifier: Apache-2.0
// `corral run --mps`: finds the daemon of the job's GPU, and says what the job's share is.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "gpu/machine.h"
#include "isolate/plan.h"
#include "mps/share.h"
#include "snapshot/run.h"

namespace corral::cli {

struct JoinedMps {
  std::string pipe_folder;
  std::vector<isolate::Setting> settings;
  std::vector<std::string> notes;
  snapshot::MpsShare share;
};

// Errors: the selection is not one whole GPU, or has no living daemon that Corral started.
Result<JoinedMps> join_mps(const mps::Share& share, const gpu::OpenedMachine& machine,
                           const isolate::Selection& allowed);

// The pipe folder of CUDA_MPS_PIPE_DIRECTORY, where the caller has set it to a daemon that Corral
// confined to one GPU of the selection: that one is no way out. Empty for any other.
std::string confined_pipe_of_caller(const gpu::Inventory& inventory,
                                    const isolate::Selection& allowed);

}  // namespace corral::cli

// SPDX-License-Identifier: Apache-2.0
// What the driver makes of CUDA_VISIBLE_DEVICES, as measured on driver 580.
#pragma once

#include "state.h"

namespace corral::sim {

// A device as CUDA counts them: a whole GPU, or one MIG instance of it.
struct Visible {
  unsigned gpu = 0;  // index in State::gpus
  int mig = -1;      // index in Gpu::mig, -1: the whole GPU
};

struct VisibleList {
  Visible device[kMaxGpus];
  unsigned count = 0;
  int error = 0;  // CUresult of cuInit: 100 without a device, 101 for a device named twice
};

// `candidates`: what this process may open, in CUDA's order. `text`: the variable, nullptr when
// unset.
VisibleList visible_devices(const State& state, const VisibleList& candidates, const char* text);

}  // namespace corral::sim

// SPDX-License-Identifier: Apache-2.0
// What --torch-alloc, --jax-alloc and --tf-alloc set for the job, checked before it starts: a
// framework that reads a wrong setting fails late, or ignores it without a word.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "isolate/plan.h"
#include "launch/environment.h"

namespace corral::launch {

struct AllocatorSettings {
  std::vector<isolate::Setting> variables;
  std::vector<std::string> remarks;  // which versions know an option, one sentence each
};

// `conf` as in PYTORCH_CUDA_ALLOC_CONF. Known is every option that a release of PyTorch has had
// (c10/core/AllocatorConfig and c10/cuda/CUDAAllocatorConfig of 1.13 to 2.13). Errors: an option
// that none has, a value that PyTorch refuses, and options that leave each other without effect.
Result<AllocatorSettings> torch_allocator(std::string_view conf);

// preallocate:true|false, fraction:0.5, allocator:default|bfc|platform|cuda_async
// (jaxlib's xla_client, generate_pjrt_gpu_plugin_options).
Result<AllocatorSettings> jax_allocator(std::string_view conf);

// growth:true|false, allocator:cuda_malloc_async|cuda_malloc|memory_guard
// (tensorflow/core/common_runtime/gpu/gpu_process_state and gpu_bfc_allocator).
Result<AllocatorSettings> tensorflow_allocator(std::string_view conf);

// What the caller's environment says otherwise, one sentence each, for the plan: these settings
// win. May add a variable that has to be emptied for that.
std::vector<std::string> settle_with(const Environment& environment, AllocatorSettings& settings);

}  // namespace corral::launch

// SPDX-License-Identifier: Apache-2.0
// Which GPUs a container's command line asks for, held against those that the job was given.
#pragma once

#include <string>
#include <vector>

#include "isolate/cdi.h"
#include "isolate/container_options.h"
#include "isolate/plan.h"

namespace corral::isolate {

struct AskedGpus {
  enum class Answer {
    nothing,  // no option names one
    within,   // those that were given, or some of them
    outside,  // others too
    unknown,  // what is named cannot be matched to a GPU
    refused,  // the engine will refuse the option
  };

  Answer answer = Answer::nothing;
  std::string words;  // one sentence for people, without a full stop; empty: nothing to say
};

// Pure. Numbers are nvidia-smi's, as engines take them, and are not matched where GPUs are closed
// to us: the engine's daemon counts those too.
AskedGpus judge_asked_gpus(const ContainerCommand& command, const Request& request,
                           const std::vector<CdiDevice>& devices);

// "GPU 0 and 1", "no GPU", "GPU 0 (MIG-6f1a)": what the job was given.
std::string given_text(const Request& request);

}  // namespace corral::isolate

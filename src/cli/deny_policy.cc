// SPDX-License-Identifier: Apache-2.0
#include "cli/deny_policy.h"

#include <fmt/format.h>

namespace corral::cli {

std::string deny_policy(const snapshot::Run& run) {
  const bool by_rank = run.expectation.kind == snapshot::Expectation::Kind::rank;
  std::string text = by_rank ? "rank" : "gpus";
  if (run.simulated) text += ";simulated";
  for (const snapshot::GpuRun& gpu : run.gpus) {
    const auto add = [&](const std::string& uuid) {
      if (!uuid.empty())
        text +=
            fmt::format(";{}={}{}", gpu.gpu.index, uuid, snapshot::is_outside(run, gpu) ? "!" : "");
    };
    add(gpu.gpu.uuid);
    for (const gpu::MigInstance& instance : gpu.gpu.mig) add(instance.uuid);
  }
  return text;
}

}  // namespace corral::cli

// SPDX-License-Identifier: Apache-2.0
// Says while the job runs what strayed just now.
#pragma once

#include <cstdint>
#include <string>

#include "snapshot/run.h"
#include "trace/follow.h"

namespace corral::cli {

class LiveStrays {
 public:
  // `run`: what is known before the job, with the expectation. `start_ns`: as of
  // snapshot::add_traces.
  LiveStrays(std::string trace_folder, const snapshot::Run& run, std::int64_t start_ns);

  // The lines for what is new: strays only, without those that the process itself has refused and
  // told. After kMaxLines nothing more but one line that says so.
  std::string look();

  static constexpr unsigned kMaxLines = 20;

 private:
  trace::FolderTail tail_;
  snapshot::Run run_;
  std::int64_t start_ns_;
  unsigned told_ = 0;
};

}  // namespace corral::cli

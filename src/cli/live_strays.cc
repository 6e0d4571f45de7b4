// SPDX-License-Identifier: Apache-2.0
#include "cli/live_strays.h"

#include <fmt/format.h>

#include "rules/context_words.h"
#include "rules/expectation.h"
#include "snapshot/from_trace.h"

namespace corral::cli {

LiveStrays::LiveStrays(std::string trace_folder, const snapshot::Run& run, std::int64_t start_ns)
    : tail_(std::move(trace_folder)), run_(run), start_ns_(start_ns) {}

std::string LiveStrays::look() {
  const auto fresh = tail_.look();
  if (fresh.empty() || told_ > kMaxLines) return "";
  snapshot::Run run = run_;
  snapshot::add_traces(fresh, start_ns_, run);
  rules::mark_strays(run);
  const char* const prefix = run.simulated ? "corral (SIMULATED)" : "corral";
  std::string lines;
  for (const snapshot::Context& context : run.contexts) {
    if (!context.stray || context.denied) continue;
    if (++told_ > kMaxLines)
      return lines + fmt::format("{}: more strays follow: see the report\n", prefix);
    lines += fmt::format("{}: {:.1f} s: pid {} made a context on GPU {}: {}\n", prefix,
                         context.time_s, context.pid, *context.gpu, rules::origin(context));
  }
  return lines;
}

}  // namespace corral::cli

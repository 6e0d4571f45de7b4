// SPDX-License-Identifier: Apache-2.0
// A share is each process's, not the job's: processes that lived at the same time had it several
// times.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "rules/rule.h"

namespace corral::rules {
namespace {

Outcome check(const snapshot::Run& run);

const Registered<Rule> rule{Rule{
    .id = "run.mps-share",
    .severity = Severity::warning,
    .summary = "the job's processes had more of the GPU together than the GPU has",
    .cause = "MPS limits each client process by itself. A job with several of them may take "
             "the limit as often as it has processes.",
    .verify = "corral mps status --gpu N, while the job runs, lists the clients and their sum.",
    .fix = "Divide the share by the number of processes: --mps 25% for four.",
    .check = check}};

// Sums of decimals.
constexpr double kRounding = 1e-6;

struct Span {
  double begin_s = 0;
  double end_s = 0;
};

// From the first context of each process on that GPU to where it is known to have been alive.
std::map<pid_t, Span> spans_on(const snapshot::Run& run, unsigned gpu) {
  std::map<pid_t, Span> spans;
  for (const snapshot::Context& context : run.contexts) {
    if (context.gpu != gpu || context.denied) continue;
    const snapshot::Init* init = snapshot::init_of(run, context);
    const std::optional<double> exited = init != nullptr ? init->exited_s : std::nullopt;
    const double end = context.ended_s.value_or(exited.value_or(context.time_s));
    const auto [at, fresh] = spans.try_emplace(context.pid, Span{context.time_s, end});
    if (fresh) continue;
    at->second.begin_s = std::min(at->second.begin_s, context.time_s);
    at->second.end_s = std::max(at->second.end_s, end);
  }
  return spans;
}

// The most that certainly lived at one moment.
unsigned most_at_once(const std::map<pid_t, Span>& spans) {
  unsigned most = 0;
  for (const auto& [pid, span] : spans) {
    const double moment = span.begin_s;
    most =
        std::max(most, static_cast<unsigned>(std::ranges::count_if(spans, [&](const auto& other) {
                   return other.second.begin_s <= moment && moment <= other.second.end_s;
                 })));
  }
  return most;
}

Outcome check(const snapshot::Run& run) {
  Outcome outcome;
  if (!run.mps || run.mps->gpu >= run.gpus.size()) return outcome;
  const snapshot::MpsShare& share = *run.mps;
  const unsigned processes = most_at_once(spans_on(run, share.gpu));
  const double percent = processes * share.percent;
  const auto& card = run.gpus[share.gpu].gpu.memory_total_bytes;
  const bool memory = card && share.memory_bytes && processes * *share.memory_bytes > *card;
  const bool computing = percent > 100 + kRounding;
  if (processes < 2 || (!computing && !memory)) return outcome;
  Finding finding = finding_of(rule.value());
  finding.gpu = share.gpu;
  finding.title =
      computing
          ? fmt::format("{} processes at once, each with {} % of GPU {}: {:.6g} % together",
                        processes, share.percent, share.gpu, percent)
          : fmt::format("{} processes at once, each with {} MiB: more together than GPU {} has",
                        processes, *share.memory_bytes >> 20, share.gpu);
  if (share.memory_bytes)
    finding.evidence.push_back(fmt::format("device memory: {} × {} MiB = {} MiB{}", processes,
                                           *share.memory_bytes >> 20,
                                           processes * (*share.memory_bytes >> 20),
                                           card ? fmt::format(" of {} MiB", *card >> 20) : ""));
  outcome.findings.push_back(std::move(finding));
  return outcome;
}

}  // namespace
}  // namespace corral::rules

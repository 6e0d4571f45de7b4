// SPDX-License-Identifier: Apache-2.0
// Allocations that succeeded once the process had given back memory that it only kept: the cache
// was in pieces that did not fit.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/text.h"
#include "rules/memory_words.h"
#include "rules/rule.h"

namespace corral::rules {
namespace {

using snapshot::Run;
using snapshot::Shortage;

Outcome check(const Run& run);

const Registered<Rule> rule{Rule{
    .id = "run.memory-fragmented",
    .severity = Severity::warning,
    .summary = "an allocation failed, and succeeded after the process had given back memory that "
               "it only kept",
    .cause = "The process kept freed memory for itself, in pieces of which none was large enough, "
             "and too little was left for a new one. So it gave its cache back and asked again. "
             "Each time that costs a pause and new allocations, and a little nearer to the limit "
             "it ends as out of memory.",
    .verify = "PyTorch counts it too: torch.cuda.memory_stats()['num_alloc_retries']; "
              "torch.cuda.memory_summary() shows what is reserved and not allocated.",
    .fix = "PyTorch: corral run --torch-alloc expandable_segments:True, and where sizes vary "
           "roundup_power2_divisions:4 or padding to a few shapes. Else less memory at the peak.",
    .check = check}};

// Of virtual memory: with expandable segments PyTorch asks so, and they cannot be the cure.
constexpr const char* kFixOfVirtual =
    "The allocator maps memory in pieces already (PyTorch with expandable_segments). Less memory "
    "at the peak helps, fewer streams that allocate, or --torch-alloc "
    "expandable_segments:True,garbage_collection_threshold:0.8.";

// One refusal and then the same once more: PyTorch and CuPy ask again so by themselves. After two
// of them an error reached the program, and what it freed then was its own.
bool is_cached(const Shortage& shortage) {
  return shortage.gpu && shortage.given_back_bytes.value_or(0) > 0 && shortage.failures == 1;
}

std::string evidence(const Shortage& shortage) {
  return fmt::format(
      "at {:.1f} s {} of {} failed{} while the process held {}; after it gave back {} the same "
      "size succeeded",
      shortage.time_s, printable(shortage.call), memory_text(shortage.bytes),
      place_text(shortage.culprit), memory_text(shortage.held_bytes),
      memory_text(*shortage.given_back_bytes));
}

Outcome check(const Run& run) {
  std::map<std::pair<pid_t, unsigned>, std::vector<const Shortage*>> by_process;
  for (const Shortage& shortage : run.shortages)
    if (is_cached(shortage)) by_process[{shortage.pid, *shortage.gpu}].push_back(&shortage);
  Outcome outcome;
  for (const auto& [who, shortages] : by_process) {
    const Shortage& largest = **std::ranges::max_element(shortages, {}, &Shortage::bytes);
    Finding finding = finding_of(rule.value());
    finding.pid = who.first;
    finding.gpu = who.second;
    finding.title = fmt::format(
        "{} of pid {} on GPU {} failed until the process had given back memory that it only kept",
        shortages.size() == 1 ? fmt::format("an allocation of {}", memory_text(largest.bytes))
                              : fmt::format("{} allocations of up to {}", shortages.size(),
                                            memory_text(largest.bytes)),
        who.first, who.second);
    finding.evidence.push_back(evidence(largest));
    if (std::ranges::all_of(shortages, [](const Shortage* s) { return s->call == "cuMemCreate"; }))
      finding.fix = kFixOfVirtual;
    outcome.findings.push_back(std::move(finding));
  }
  return outcome;
}

}  // namespace
}  // namespace corral::rules

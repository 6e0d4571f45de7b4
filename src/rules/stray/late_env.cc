// SPDX-License-Identifier: Apache-2.0
// CUDA_VISIBLE_DEVICES was set after the driver had read it.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/text.h"
#include "rules/context_words.h"
#include "rules/visible_list.h"
#include "snapshot/from_trace.h"

namespace corral::rules {
namespace {

using snapshot::Context;
using snapshot::Init;
using snapshot::PythonFrame;
using snapshot::Run;

Outcome check(const Run& run);

const Registered<Rule> rule{Rule{
    .id = "stray.late-env",
    .severity = Severity::error,
    .summary = "CUDA_VISIBLE_DEVICES was set after CUDA had started",
    .cause = "The driver reads CUDA_VISIBLE_DEVICES once, when CUDA starts in the process (cuInit; "
             "torch.cuda.is_available() does it). Here it was set after that, and had no effect.",
    .verify = "tr '\\0' '\\n' </proc/PID/environ shows the value that the process began with.",
    .fix = "Export CUDA_VISIBLE_DEVICES before Python starts, or set it above the line that starts "
           "CUDA.",
    .precedence = Precedence::value,
    .check = check}};

constexpr std::string_view kVariable = "CUDA_VISIBLE_DEVICES";

struct Candidate {
  PythonFrame line;
  std::string text;
  Assignment assignment;
};

// The user's files that stand in the process's stacks.
std::set<std::string> own_files(const Run& run, pid_t pid) {
  std::set<std::string> files;
  const auto take = [&](const std::vector<PythonFrame>& frames) {
    for (const PythonFrame& frame : frames)
      if (snapshot::is_own_code(frame.file)) files.insert(frame.file);
  };
  for (const Context& context : run.contexts) {
    if (context.pid != pid) continue;
    take(context.stack.python);
    take(context.stack.main_thread);
  }
  for (const Init& init : run.inits) {
    if (init.pid != pid) continue;
    take(init.stack.python);
    if (init.culprit && snapshot::is_own_code(init.culprit->file)) files.insert(init.culprit->file);
  }
  return files;
}

std::vector<Candidate> assignments_in(const Run& run, pid_t pid) {
  std::vector<Candidate> out;
  for (const std::string& file : own_files(run, pid)) {
    const auto source = source_of(run, pid, file);
    if (!source) continue;
    for (const Assignment& found : assignments_of(source->statements, kVariable))
      out.push_back({.line = {.file = file, .line = found.line, .function = found.scope},
                     .text = std::string(line_of(source->text, found.line)),
                     .assignment = found});
  }
  return out;
}

std::string value_words(const std::optional<std::string>& value) {
  return value ? fmt::format("was {}", printable(*value)) : "was not set";
}

// In the same block of code, and below the line that started CUDA: it will be reached.
bool follows(const Stray& stray, const Candidate& candidate, const PythonFrame& start) {
  if (candidate.line.file != start.file || candidate.line.function != start.function || !start.line)
    return false;
  const auto source = source_of(stray.run(), stray.context().pid, start.file);
  return source && follows_in_block(source->statements, *start.line, *candidate.line.line);
}
bool precedes(const Candidate& candidate, const PythonFrame& start) {
  return candidate.line.file == start.file && candidate.line.function == start.function &&
         start.line && *candidate.line.line < *start.line;
}

// Which lines may have set the value that is there now.
std::vector<Candidate> who_set(std::vector<Candidate> all, const std::optional<std::string>& value,
                               const std::optional<PythonFrame>& start) {
  std::erase_if(all, [&](const Candidate& candidate) {
    return (start && precedes(candidate, *start)) ||
           (candidate.assignment.value && value && *candidate.assignment.value != *value);
  });
  return all;
}

std::string fix_of(const std::string& value, const Init& init) {
  return fmt::format(
      "Export CUDA_VISIBLE_DEVICES={} before Python starts (corral run --gpus does), or set it "
      "above {}.",
      printable(value), init.culprit ? place(*init.culprit) : "the line that starts CUDA");
}

void tell(const Init& init, const std::vector<Candidate>& candidates, Explanation& out) {
  if (init.culprit)
    out.evidence.push_back(fmt::format("CUDA was started at {} in {}", place(*init.culprit),
                                       printable(init.culprit->function)));
  for (const Candidate& candidate : candidates)
    out.evidence.push_back(
        fmt::format("{} at {}: {}", candidates.size() == 1 ? "set too late" : "set, perhaps here,",
                    place(candidate.line), printable(candidate.text)));
  if (candidates.empty())
    out.evidence.emplace_back("the line that sets it is in none of the files that were read");
}

// The value itself tells: it is another now, and with it this GPU would have been out of sight.
std::optional<Explanation> by_value(const Stray& stray, const Init& init) {
  const Context& context = stray.context();
  if (!context.visible_devices_changed || !context.visible_devices ||
      would_show(stray, *context.visible_devices) != false)
    return std::nullopt;
  Explanation out;
  out.evidence.push_back(fmt::format("CUDA_VISIBLE_DEVICES {} when CUDA started, and was {} here",
                                     value_words(init.visible_devices),
                                     printable(*context.visible_devices)));
  tell(init,
       who_set(assignments_in(stray.run(), context.pid), context.visible_devices, init.culprit),
       out);
  out.fix = fix_of(*context.visible_devices, init);
  return out;
}

// The context was there before the line was reached: the script tells that it will be, too late.
std::optional<Explanation> by_text(const Stray& stray, const Init& init) {
  if (!stray.context().stray || stray.context().visible_devices_changed || !init.culprit)
    return std::nullopt;
  std::vector<Candidate> late = assignments_in(stray.run(), stray.context().pid);
  std::erase_if(late, [&](const Candidate& candidate) {
    return !follows(stray, candidate, *init.culprit) || !candidate.assignment.value ||
           would_show(stray, *candidate.assignment.value) != false;
  });
  if (late.size() != 1) return std::nullopt;
  Explanation out;
  out.evidence.push_back(
      fmt::format("CUDA_VISIBLE_DEVICES {} when CUDA started", value_words(init.visible_devices)));
  tell(init, late, out);
  out.fix = fix_of(*late.front().assignment.value, init);
  // What the call did comes first where that is known: the variable may be meant for a child.
  out.precedence = Precedence::text;
  if (!stray.context().culprit || !snapshot::is_own_code(stray.context().culprit->file))
    out.culprit = init.culprit;
  return out;
}

bool nothing_is_expected(const Run& run) {
  return !run.confinement.requested && run.expectation.kind == snapshot::Expectation::Kind::none;
}

std::vector<std::size_t> first_contexts(const Run& run) {
  std::vector<std::size_t> positions(std::min(run.contexts.size(), kMostExplained));
  std::iota(positions.begin(), positions.end(), std::size_t{0});
  return positions;
}

Outcome check(const Run& run) {
  Outcome outcome;
  for (const std::size_t i :
       nothing_is_expected(run) ? first_contexts(run) : strays_to_explain(run)) {
    const Stray stray(run, i);
    const Init* init = stray.init();
    if (init == nullptr) continue;
    auto explanation = by_value(stray, *init);
    if (!explanation) explanation = by_text(stray, *init);
    if (!explanation) continue;
    Finding finding = finding_about(rule.value(), stray, std::move(*explanation));
    if (!run.contexts[i].stray) finding.severity = Severity::warning;
    outcome.findings.push_back(std::move(finding));
  }
  return outcome;
}

}  // namespace
}  // namespace corral::rules

// SPDX-License-Identifier: Apache-2.0
// A process that started CUDA without the CUDA_VISIBLE_DEVICES that its parent, or the job, had.
#include <fmt/format.h>

#include "base/text.h"
#include "rules/context_words.h"
#include "rules/visible_list.h"
#include "snapshot/from_trace.h"

namespace corral::rules {
namespace {

using snapshot::Init;
using snapshot::PythonFrame;
using snapshot::Run;

Outcome check(const Run& run);

const Registered<Rule> rule{Rule{
    .id = "stray.lost-variable",
    .severity = Severity::error,
    .summary = "a process that lost CUDA_VISIBLE_DEVICES on the way",
    .cause = "The process began without the CUDA_VISIBLE_DEVICES that was meant for it, and so "
             "sees every GPU. Environments made anew do that: subprocess with env=, sudo, ssh, "
             "cron, env -i.",
    .verify = "tr '\\0' '\\n' </proc/PID/environ of the process and of its parent.",
    .fix = "Hand the variable on (env={**os.environ, …}; sudo --preserve-env), or hide the GPUs "
           "where no variable is needed: corral run --gpus.",
    .precedence = Precedence::value,
    .check = check}};

const Init* parent_of(const Run& run, const Init& child) {
  if (child.parent_pid == 0) return nullptr;
  for (const Init& init : run.inits)
    if (init.pid == child.parent_pid && init.visible_devices) return &init;
  return nullptr;
}

// The line of the parent that starts a program with an environment of its own, below the line that
// sets the variable.
std::optional<PythonFrame> starts_child(const Run& run, const Init& parent) {
  for (const PythonFrame& frame : parent.stack.python) {
    if (!snapshot::is_own_code(frame.file)) continue;
    const auto source = source_of(run, parent.pid, frame.file);
    if (!source) continue;
    for (const Assignment& set : assignments_of(source->statements, "CUDA_VISIBLE_DEVICES"))
      for (const Statement& s : source->statements)
        if (s.first_line > set.line && s.scope == set.scope && s.has_name("env") &&
            s.calls_any({"run", "Popen", "call", "check_call", "check_output"}))
          return PythonFrame{.file = frame.file, .line = s.first_line, .function = s.scope};
  }
  return std::nullopt;
}

std::string fix_of(const Run& run) {
  return "Hand the variable on (env={**os.environ, …}; sudo --preserve-env), or hide the GPUs "
         "where "
         "no variable is needed: " +
         how_to_confine(run) + ".";
}

std::optional<Explanation> against_parent(const Stray& stray, const Init& child) {
  const Init* parent = parent_of(stray.run(), child);
  if (parent == nullptr || would_show(stray, *parent->visible_devices) != false)
    return std::nullopt;
  const auto line = starts_child(stray.run(), *parent);
  // A parent that started CUDA later may have set the variable after it had started the child.
  if (parent->time_s > child.time_s && !line) return std::nullopt;
  Explanation out;
  out.fix = fix_of(stray.run());
  out.evidence.emplace_back("at cuInit CUDA_VISIBLE_DEVICES was not set");
  out.evidence.push_back(fmt::format("its parent (pid {}) had CUDA_VISIBLE_DEVICES={}", parent->pid,
                                     printable(*parent->visible_devices)));
  if (line) out.evidence.push_back("started with an environment of its own at " + place(*line));
  return out;
}

std::optional<Explanation> explain(const Stray& stray) {
  const Init* init = stray.init();
  if (init == nullptr || init->visible_devices) return std::nullopt;
  if (const auto& given = stray.run().confinement.visible_devices) {
    Explanation out;
    out.fix = fix_of(stray.run());
    out.evidence = {fmt::format("given CUDA_VISIBLE_DEVICES={}", *given),
                    "at cuInit CUDA_VISIBLE_DEVICES was not set"};
    return out;
  }
  return against_parent(stray, *init);
}

Outcome check(const Run& run) { return explain_strays(run, rule.value(), explain, Found::taken); }

}  // namespace
}  // namespace corral::rules

// SPDX-License-Identifier: Apache-2.0
// A library that uses CUDA while it is imported.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "rules/current_device.h"

namespace corral::rules {
namespace {

using snapshot::PythonFrame;

Outcome check(const snapshot::Run& run);

const Registered<Rule> rule{Rule{
    .id = "stray.import",
    .severity = Severity::error,
    .summary = "a library that uses CUDA while it is imported",
    .cause = "The library uses CUDA at its top level, so importing it makes a context, before the "
             "job can have chosen a device.",
    .verify = "python3 -c 'import LIBRARY; input()', and look at nvidia-smi.",
    .fix = "Export CUDA_VISIBLE_DEVICES before Python starts (corral run --gpus does), or choose "
           "the device above the import; tell the library's authors.",
    .precedence = Precedence::module,
    .check = check}};

bool imports(const PythonFrame& frame) {
  return frame.file == "<frozen importlib._bootstrap>" ||
         frame.file == "<frozen importlib._bootstrap_external>";
}

std::optional<Explanation> explain(const Stray& stray) {
  const auto frames = stray.library();
  if (stray.own() == nullptr) return std::nullopt;
  const auto machinery = std::ranges::find_if(frames, imports);
  // The frame that the import runs must be a module of a library, at its top level.
  if (machinery == frames.end() || machinery == frames.begin()) return std::nullopt;
  const PythonFrame& top_level = *(machinery - 1);
  if (top_level.function != "<module>" || stray.library_file(top_level).empty())
    return std::nullopt;
  Explanation out;
  out.evidence.push_back(fmt::format("made at import, by {}", place(top_level)));
  const std::string_view file = stray.library_file(top_level);
  out.cause = fmt::format(
      "{} uses CUDA at its top level, so importing it makes a context, before the job can have "
      "chosen a device.",
      printable(file));
  return out;
}

Outcome check(const snapshot::Run& run) { return explain_strays(run, rule.value(), explain); }

}  // namespace
}  // namespace corral::rules

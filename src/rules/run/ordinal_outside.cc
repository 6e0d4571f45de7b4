// SPDX-License-Identifier: Apache-2.0
// A job that failed and names a device by the number that it has on the whole machine: inside, the
// GPUs that were given are numbered from 0.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/text.h"
#include "rules/python_source.h"
#include "rules/rule.h"

namespace corral::rules {
namespace {

using snapshot::Run;

Outcome check(const Run& run);

const Registered<Rule> rule{Rule{
    .id = "run.ordinal-outside",
    .severity = Severity::info,
    .summary = "a job that failed names a device number higher than it has GPUs",
    .cause = "The job sees only the GPUs that it was given, and CUDA numbers what it sees from "
             "0. A number of the whole machine names no device inside.",
    .verify = "corral run --gpus SEL -- python3 -c 'import torch; "
              "print(torch.cuda.device_count())'",
    .fix = "Count from 0 in the job: cuda:0 is the first GPU of --gpus. Or leave the number "
           "out and let --gpus alone decide.",
    .check = check}};

// What the job sees, for the end of a sentence.
std::string inside(const std::vector<unsigned>& given) {
  if (given.size() == 1) return fmt::format("it sees one GPU: GPU {} is cuda:0 inside", given[0]);
  return fmt::format("it sees {} GPUs, which are cuda:0 to cuda:{} inside", given.size(),
                     given.size() - 1);
}

std::string place(const std::optional<snapshot::PythonFrame>& frame) {
  if (!frame) return "";
  return fmt::format(" ({}:{})", printable(frame->file),
                     frame->line ? std::to_string(*frame->line) : "?");
}

// The number in "cuda:1", nullopt for any other text.
std::optional<unsigned> number_of(const Token& token) {
  constexpr std::string_view kName = "cuda:";
  if (token.kind != Token::Kind::text || !token.value.starts_with(kName)) return std::nullopt;
  return parse_number<unsigned>(std::string_view(token.value).substr(kName.size()));
}

// CUDA refused the number: that is proof.
std::optional<Finding> refused(const Run& run, const std::vector<unsigned>& given) {
  for (const snapshot::NoSuchDevice& call : run.no_such_devices) {
    if (call.ordinal < 0 || static_cast<std::size_t>(call.ordinal) < given.size()) continue;
    Finding finding = finding_of(rule.value());
    finding.pid = call.pid;
    finding.title = fmt::format("the job asked for device {}{}, and {}", call.ordinal,
                                place(call.culprit), inside(given));
    finding.evidence = {
        fmt::format("{} answered 101 (invalid device ordinal)", printable(call.call))};
    return finding;
  }
  return std::nullopt;
}

// The runtime compares the number itself and asks the driver nothing: what is left is the text.
std::optional<Finding> written(const Run& run, const std::vector<unsigned>& given) {
  for (const auto& [file, source] : run.sources) {
    for (const Statement& statement : statements_of(source)) {
      for (const Token& token : statement.tokens) {
        const auto number = number_of(token);
        if (!number || *number < given.size()) continue;
        Finding finding = finding_of(rule.value());
        finding.title = fmt::format("the job names {} ({}:{}), and {}", token.value,
                                    printable(file), statement.first_line, inside(given));
        finding.evidence = {printable(line_of(source, statement.first_line)),
                            "whether that is why it failed is not known"};
        return finding;
      }
    }
  }
  return std::nullopt;
}

Outcome check(const Run& run) {
  Outcome outcome;
  std::vector<unsigned> given;
  for (const snapshot::GpuRun& gpu : run.gpus)
    if (gpu.allowed) given.push_back(gpu.gpu.index);
  const bool renumbered =
      run.confinement.requested && !given.empty() && given.size() < run.gpus.size();
  if (!renumbered || run.exit.code == 0) return outcome;
  auto finding = refused(run, given);
  // A number in the text is no reason for a signal.
  if (!finding && run.exit.code) finding = written(run, given);
  if (finding) outcome.findings.push_back(*std::move(finding));
  return outcome;
}

}  // namespace
}  // namespace corral::rules

// SPDX-License-Identifier: Apache-2.0
#include "report/run_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "report/context_lines.h"
#include "report/run_summary.h"
#include "report/text_writer.h"
#include "rules/expectation.h"

namespace corral::report {
namespace {

using rules::Finding;
using rules::Severity;
using snapshot::GpuRun;
using snapshot::Run;

constexpr std::size_t kMaxFindings = 8;   // more of them are in the JSON report
constexpr std::size_t kMaxNotJudged = 4;  // likewise

std::uint64_t mib(std::uint64_t bytes) { return bytes >> 20; }

// {0,2,3,4} as "0, 2-4".
std::string ranges(const std::vector<unsigned>& numbers) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i;
    while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
    if (end >= i + 2) {
      parts.push_back(fmt::format("{}-{}", numbers[i], numbers[end]));
    } else {
      for (std::size_t k = i; k <= end; ++k) parts.push_back(std::to_string(numbers[k]));
    }
    i = end + 1;
  }
  return join(parts, ", ");
}

std::vector<unsigned> indices(const Run& run, bool allowed) {
  std::vector<unsigned> out;
  for (const GpuRun& gpu : run.gpus)
    if (gpu.allowed == allowed) out.push_back(gpu.gpu.index);
  return out;
}

std::string given(const Run& run) {
  const std::vector<unsigned> gpus = indices(run, true);
  return gpus.empty() ? "no GPU given" : fmt::format("given GPU {}", ranges(gpus));
}

// Of the refused nodes those that are no GPU's: what --refuse named.
std::vector<std::string> refused_besides(const Run& run) {
  std::vector<std::string> paths;
  for (const std::string& path : run.confinement.refused) {
    const bool gpus = std::ranges::any_of(run.gpus, [&](const GpuRun& one) {
      return one.gpu.node == path ||
             std::ranges::find(one.gpu.drm_nodes, path) != one.gpu.drm_nodes.end();
    });
    if (!gpus && path.find("/nvidia-cap") == path.npos) paths.push_back(printable(path));
  }
  return paths;
}

std::string plain_promise(const Run& run, const TextWriter& w) {
  const snapshot::Confinement& c = run.confinement;
  if (!c.requested && c.nothing_to_refuse) return "watched only: no GPU was refused (see --gpus)";
  if (c.nothing_to_refuse) return given(run) + "; there was nothing to refuse";
  if (c.enforced == "none")
    return w.strong("NOT ENFORCED", kRed) +
           (c.requested ? ", only CUDA_VISIBLE_DEVICES was set; " : ", nothing was refused; ") +
           given(run);
  const std::vector<unsigned> refused = indices(run, false);
  std::vector<std::string> what;
  if (c.requested && !refused.empty()) what.push_back(fmt::format("GPU {}", ranges(refused)));
  std::vector<std::string> besides = refused_besides(run);
  constexpr std::size_t kMostNamed = 3;
  if (besides.size() > kMostNamed) besides = {fmt::format("{} other nodes", besides.size())};
  what.insert(what.end(), besides.begin(), besides.end());
  if (what.empty() && !c.refused.empty()) what.push_back(printable(join(c.refused, ", ")));
  const std::string but =
      c.open_ways.empty() ? "" : w.strong(", but for " + join_and(c.open_ways), kYellow);
  return fmt::format("{}; its processes {} open {}{} ({}{}{})", given(run),
                     w.strong("could not", kGreen), join_and(what), but,
                     c.layers.empty() ? c.enforced : join(c.layers, " + "),
                     c.tight ? ", tight" : "", c.as_root ? ", as root" : "");
}

// What is claimed of a job that was only watched.
std::string expectation_words(const Run& run) {
  using Kind = snapshot::Expectation::Kind;
  std::string text = "traced, nothing was confined";
  const std::vector<unsigned> gpus = indices(run, true);
  if (run.expectation.kind == Kind::rank) text += "; expected each rank on its own GPU";
  if (run.expectation.kind == Kind::gpus)
    text += gpus.empty() ? "; expected no GPU" : fmt::format("; expected GPU {}", ranges(gpus));
  if (run.expectation.denied) text += ", contexts elsewhere were refused inside the job (--deny)";
  return text;
}

bool has_selection(const Run& run) {
  return run.confinement.requested || run.expectation.kind == snapshot::Expectation::Kind::gpus;
}

std::string watts(const GpuNumbers& n) {
  if (!n.power_mean_w && !n.power_before_w) return "power unknown";
  if (!n.power_mean_w) return fmt::format("{:.1f} W before", *n.power_before_w);
  if (!n.power_before_w) return fmt::format("{:.1f} W mean", *n.power_mean_w);
  return fmt::format("{:.1f} W mean ({:.1f} before)", *n.power_mean_w, *n.power_before_w);
}

std::string memory_range(const GpuNumbers& n) {
  if (!n.memory_min_bytes) return "memory unknown";
  return fmt::format("memory {}-{} MiB", mib(*n.memory_min_bytes), mib(*n.memory_max_bytes));
}

// A context takes hundreds of MiB: where every reading is 0, they were all before or after it.
std::string memory_words(const GpuRun& gpu, const GpuNumbers& n) {
  if (gpu.contexts.value_or(0) > 0 && n.memory_max_bytes == 0U)
    return "memory not read while it was there";
  return memory_range(n);
}

std::string contexts(const std::optional<unsigned>& count) {
  if (!count) return "contexts not observed";
  return fmt::format("{} context{}", *count, *count == 1 ? "" : "s");
}

std::string trouble(const GpuRun& gpu) {
  return gpu.state.empty() ? std::string() : fmt::format(", {}", printable(gpu.state));
}

// What is said of a GPU that nobody was seen on. Only what the kernel refused is called untouched:
// without it, a process that lived for a moment may have been there.
std::string quiet_words(const Run& run, const TextWriter& w) {
  if (!has_selection(run)) return "no use seen";
  return run.confinement.enforced == "none" ? "no touch seen" : w.strong("untouched", kGreen);
}

std::string state_words(const Run& run, const GpuRun& gpu, const TextWriter& w) {
  if (gpu.allowed && has_selection(run)) return run.traced ? "expected" : "given";
  const std::optional<bool> used = touched(run, gpu);
  if (!used) return w.strong("not checked", kYellow);
  if (!*used) return quiet_words(run, w);
  return has_selection(run) ? w.strong("TOUCHED", kRed) : "used";
}

// What of the job's memory its calls explain, for those who ask.
std::string remainder(const Run& run, const GpuRun& gpu) {
  const JobMemory memory = job_memory(run, gpu);
  if (!memory.unexplained_peak_bytes || gpu.job_memory_peak_bytes.value_or(0) == 0) return "";
  return fmt::format(" ({} allocated, {} no call explains: context, modules, pools)",
                     mib(*memory.allocated_peak_bytes), mib(*memory.unexplained_peak_bytes));
}

void gpu_line(const Run& run, const GpuRun& gpu, TextWriter& w) {
  const GpuNumbers n = numbers(run, gpu);
  const std::string peak = gpu.job_memory_peak_bytes.value_or(0) > 0
                               ? fmt::format(", job peak {} MiB{}", mib(*gpu.job_memory_peak_bytes),
                                             w.verbose() ? remainder(run, gpu) : "")
                               : "";
  w.line("GPU {} {}: {}{}, {}, {}{}", gpu.gpu.index, state_words(run, gpu, w),
         contexts(gpu.contexts), peak, memory_words(gpu, n), watts(n), trouble(gpu));
}

// On a machine of many GPUs the untouched ones share a line.
void untouched_line(const Run& run, const std::vector<const GpuRun*>& gpus, TextWriter& w) {
  std::vector<unsigned> numbers_of;
  std::uint64_t swing = 0;
  bool memory_known = true;
  for (const GpuRun* gpu : gpus) {
    numbers_of.push_back(gpu->gpu.index);
    const GpuNumbers n = numbers(run, *gpu);
    if (n.memory_min_bytes)
      swing = std::max(swing, *n.memory_max_bytes - *n.memory_min_bytes);
    else
      memory_known = false;
  }
  w.line("GPU {} {}: 0 contexts each, {}", ranges(numbers_of), quiet_words(run, w),
         memory_known ? fmt::format("memory swing at most {} MiB", mib(swing)) : "memory unknown");
}

void gpu_lines(const Run& run, TextWriter& w) {
  std::vector<const GpuRun*> quiet;
  for (const GpuRun& gpu : run.gpus)
    if (!gpu.allowed && touched(run, gpu) == false && gpu.state.empty() && gpu.contexts)
      quiet.push_back(&gpu);
  const bool together = quiet.size() > 2;
  if (together) untouched_line(run, quiet, w);
  for (const GpuRun& gpu : run.gpus)
    if (!together || std::ranges::find(quiet, &gpu) == quiet.end()) gpu_line(run, gpu, w);
}

void finding_lines(const Finding& finding, bool verbose, TextWriter& w) {
  const std::string_view sgr = finding.severity == Severity::error ? kRed : kYellow;
  w.line("{}: {} [{}]", w.strong(rules::name(finding.severity), sgr), printable(finding.title),
         finding.id);
  if (finding.severity == Severity::info && !verbose) return;
  for (const std::string& evidence : finding.evidence) w.detail("{}", printable(evidence));
  w.detail("cause: {}", finding.cause);
  w.detail("check: {}", finding.verify);
  w.detail("fix:   {}", finding.fix);
}

// The cause of the same fault in fifty workers is said once.
bool same_fault(const Finding& a, const Finding& b) {
  return a.id == b.id && a.gpu == b.gpu && a.evidence == b.evidence;
}

void findings(const rules::Verdict& verdict, TextStyle style, TextWriter& w) {
  std::size_t shown = 0;
  std::size_t same = 0;
  const Finding* last = nullptr;
  const auto flush = [&] {
    if (same > 0) w.detail("… and the same in {} more", same);
    same = 0;
  };
  for (const Finding& finding : verdict.findings) {
    if (last != nullptr && same_fault(*last, finding)) {
      ++same;
      continue;
    }
    flush();
    if (shown == kMaxFindings && !style.verbose) {
      w.line("more findings: see --report FILE, or -v");
      return;
    }
    finding_lines(finding, style.verbose, w);
    last = &finding;
    ++shown;
  }
  flush();
}

// With what to type instead, where that is known.
void not_covered_lines(const Run& run, TextWriter& w) {
  const snapshot::Confinement& c = run.confinement;
  for (const std::string& hole : c.not_covered) {
    w.line("not covered: {}", printable(hole));
    const auto advice = std::ranges::find(c.advice, hole, &snapshot::Advice::what);
    if (advice != c.advice.end() && !advice->instead.empty())
      w.detail("instead: {}", printable(advice->instead));
  }
  for (const snapshot::Advice& advice : c.advice) {
    if (advice.leaves) continue;
    w.line("{}: {}", w.strong("warning", kYellow), printable(advice.what));
    if (!advice.instead.empty()) w.detail("instead: {}", printable(advice.instead));
  }
}

// Who could not be judged is part of the verdict: silence would say that all were right.
void not_judged(const rules::Verdict& verdict, TextStyle style, TextWriter& w) {
  std::size_t count = 0;
  for (const rules::NotChecked& entry : verdict.not_checked)
    if (entry.id == rules::kExpectRank && (++count <= kMaxNotJudged || style.verbose))
      w.line("not checked: {}", printable(entry.why));
  if (count > kMaxNotJudged && !style.verbose)
    w.detail("… and {} more processes: see --report FILE, or -v", count - kMaxNotJudged);
}

}  // namespace

std::string run_text(const Run& run, const rules::Verdict& verdict, TextStyle style) {
  TextWriter w(run, style);
  w.line("{} {} after {:.1f} s; {}",
         printable(run.command.empty() ? "the job" : run.command.front()), exit_words(run.exit),
         run.duration_s, run.traced ? expectation_words(run) : plain_promise(run, w));
  gpu_lines(run, w);
  for (const snapshot::Around& around : run.confinement.around)
    w.line("{}", printable(around.text));
  for (const snapshot::HeldLimit& limit : run.confinement.limits)
    w.line("limit: {}", printable(limit.text));
  if (run.traced) context_lines(run, style, w);
  not_covered_lines(run, w);
  if (style.verbose)
    for (const std::string& limit : run.confinement.general_limits)
      w.line("not covered: {}", limit);
  findings(verdict, style, w);
  not_judged(verdict, style, w);
  if (run.coverage.records_lost > 0)
    w.line("{} trace records were lost", run.coverage.records_lost);
  for (const std::string& note : run.notes) w.line("note: {}", printable(note));
  if (!style.verbose) return w.take();
  for (const std::string& remark : run.remarks) w.line("note: {}", printable(remark));
  for (const rules::NotChecked& rule : verdict.not_checked)
    if (rule.id != rules::kExpectRank) w.line("not checked: {}: {}", rule.id, printable(rule.why));
  return w.take();
}

}  // namespace corral::report

// SPDX-License-Identifier: Apache-2.0
#include "rules/stray_context.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "rules/context_words.h"
#include "rules/expectation.h"
#include "snapshot/from_trace.h"
#include "snapshot/sources.h"

namespace corral::rules {
namespace {

using snapshot::Context;
using snapshot::GpuRun;
using snapshot::Init;
using snapshot::NativeFrame;
using snapshot::PythonFrame;
using snapshot::Run;

constexpr std::size_t kMaxLineBytes = 160;

std::string_view below_packages(std::string_view file) {
  for (const std::string_view part : {"/site-packages/", "/dist-packages/"})
    if (const std::size_t at = file.rfind(part); at != std::string_view::npos)
      return file.substr(at + part.size());
  return {};
}

// "threading.py" of "…/lib/python3.12/threading.py".
std::string_view below_standard_library(std::string_view file) {
  if (!below_packages(file).empty() || snapshot::is_own_code(file)) return {};
  for (const std::string_view part : {"/lib/python", "/lib64/python"}) {
    const std::size_t at = file.find(part);
    if (at == std::string_view::npos) continue;
    const std::size_t end = file.find('/', at + part.size());
    return end == std::string_view::npos ? std::string_view() : file.substr(end + 1);
  }
  return {};
}

// The walker gives co_name or co_qualname, by Python's version.
std::string_view plain_name(std::string_view function) {
  const std::size_t dot = function.rfind('.');
  return dot == std::string_view::npos ? function : function.substr(dot + 1);
}

bool is_one_of(std::string_view function, std::initializer_list<std::string_view> functions) {
  return std::ranges::find(functions, plain_name(function)) != functions.end();
}

// A checkout of PyTorch that is imported from where it was built: its native libraries, which no
// user's module has, stand in the stack.
std::string checkout_of(const snapshot::Stack& stack) {
  for (const NativeFrame& frame : stack.native) {
    if (!below_packages(frame.module).empty()) continue;
    const std::size_t at = frame.module.find("/torch/lib/lib");
    if (at != std::string::npos) return frame.module.substr(0, at + 1);
  }
  return {};
}

bool numbers_are_indices(const Run& run, const Init& init) {
  if (init.visible_devices || run.gpus.empty()) return false;
  if (init.device_order == "PCI_BUS_ID") return true;
  const std::string& name = run.gpus.front().gpu.name;
  return !name.empty() &&
         std::ranges::all_of(run.gpus, [&](const GpuRun& gpu) { return gpu.gpu.name == name; });
}

// The library's function that the user's line called, past what only wraps it.
const PythonFrame* entered_library(const Stray& stray) {
  if (stray.own() == nullptr) return nullptr;
  const auto frames = stray.library();
  for (std::size_t i = frames.size(); i-- > 0;)
    if (!stray.library_file(frames[i]).empty() &&
        !is_one_of(frames[i].function, {"wrapper", "_wrapped_call_impl", "_call_impl"}))
      return &frames[i];
  return nullptr;
}

std::optional<unsigned> meant_gpu(const Stray& stray) {
  std::vector<unsigned> given;
  for (const GpuRun& gpu : stray.run().gpus)
    if (gpu.allowed) given.push_back(gpu.gpu.index);
  if (given.size() == 1) return given.front();
  std::optional<unsigned> last;
  for (const Context* context : stray.earlier())
    if (context->gpu && !context->stray && std::ranges::find(given, *context->gpu) != given.end())
      last = context->gpu;
  return last;
}

std::optional<int> ordinal_of(const Stray& stray, unsigned gpu) {
  for (const Context& context : stray.run().contexts)
    if (context.pid == stray.context().pid && context.gpu == gpu && context.ordinal)
      return context.ordinal;
  const Init* init = stray.init();
  if (init != nullptr && numbers_are_indices(stray.run(), *init)) return static_cast<int>(gpu);
  return std::nullopt;
}

}  // namespace

Stray::Stray(const Run& run, std::size_t at)
    : run_(run), at_(at), context_(run.contexts[at]), checkout_(checkout_of(context_.stack)) {
  split_frames();
  read_source();
}

void Stray::split_frames() {
  const std::span<const PythonFrame> frames = context_.stack.python;
  const auto own = std::ranges::find_if(frames, [&](const PythonFrame& frame) {
    return snapshot::is_own_code(frame.file) && library_file(frame).empty();
  });
  library_ = frames.first(static_cast<std::size_t>(own - frames.begin()));
  if (own != frames.end()) own_ = &*own;
}

void Stray::read_source() {
  if (own_ == nullptr || !own_->line) return;
  auto source = source_of(run_, context_.pid, own_->file);
  if (!source) return;
  statements_ = std::move(source->statements);
  statement_ = statement_at(statements_, *own_->line);
  own_text_ = line_of(source->text, *own_->line).substr(0, kMaxLineBytes);
}

std::string_view Stray::library_file(const PythonFrame& frame) const {
  if (!checkout_.empty() && frame.file.starts_with(checkout_ + "torch/"))
    return std::string_view(frame.file).substr(checkout_.size());
  return below_packages(frame.file);
}

bool Stray::is(const PythonFrame& frame, std::string_view file,
               std::initializer_list<std::string_view> functions) const {
  return library_file(frame) == file && is_one_of(frame.function, functions);
}

const PythonFrame* Stray::find(std::string_view file,
                               std::initializer_list<std::string_view> functions) const {
  for (const PythonFrame& frame : library_)
    if (is(frame, file, functions)) return &frame;
  return nullptr;
}

const PythonFrame* Stray::find_anywhere(std::string_view file,
                                        std::initializer_list<std::string_view> functions) const {
  for (const PythonFrame& frame : context_.stack.python)
    if (is(frame, file, functions)) return &frame;
  return nullptr;
}

const PythonFrame* Stray::find_standard(std::string_view file,
                                        std::initializer_list<std::string_view> functions) const {
  for (const PythonFrame& frame : context_.stack.python)
    if (below_standard_library(frame.file) == file && is_one_of(frame.function, functions))
      return &frame;
  return nullptr;
}

bool Stray::in_module(std::string_view part) const {
  return std::ranges::any_of(context_.stack.native, [&](const NativeFrame& frame) {
    return frame.module.find(part) != std::string::npos;
  });
}

bool Stray::in_function(std::initializer_list<std::string_view> functions) const {
  return std::ranges::any_of(context_.stack.native, [&](const NativeFrame& frame) {
    return std::ranges::find(functions, frame.function) != functions.end();
  });
}

std::vector<const Context*> Stray::earlier() const {
  std::vector<const Context*> out;
  for (const Context& context : run_.contexts)
    if (&context != &context_ && context.pid == context_.pid && context.time_s <= context_.time_s)
      out.push_back(&context);
  return out;
}

const Init* Stray::init() const { return snapshot::init_of(run_, context_); }

std::optional<Source> source_of(const Run& run, pid_t pid, const std::string& file) {
  const auto at = run.sources.find(snapshot::source_key(run, pid, file));
  if (at == run.sources.end()) return std::nullopt;
  return Source{.text = at->second, .statements = statements_of(at->second)};
}

Finding finding_about(const Rule& rule, const Stray& stray, Explanation explanation) {
  const Context& context = stray.context();
  Finding finding = finding_of(rule);
  finding.gpu = context.gpu;
  finding.pid = context.pid;
  finding.title = stray_title(context);
  if (!explanation.culprit && stray.own() != nullptr) explanation.culprit = *stray.own();
  finding.evidence.push_back(explanation.culprit ? origin(context, *explanation.culprit)
                                                 : origin(context));
  if (!stray.own_text().empty() && explanation.culprit == *stray.own())
    finding.evidence.push_back(fmt::format("that line: {}", printable(stray.own_text())));
  if (const PythonFrame* entered = entered_library(stray))
    finding.evidence.push_back(
        fmt::format("by way of {} in {}", place(*entered), printable(entered->function)));
  for (std::string& line : explanation.evidence) finding.evidence.push_back(std::move(line));
  const Meant meant = meant_device(stray);
  if (meant.gpu && meant.ordinal)
    finding.evidence.push_back(
        fmt::format("GPU {}, which was meant, is cuda:{} here", *meant.gpu, *meant.ordinal));
  if (!explanation.cause.empty()) finding.cause = std::move(explanation.cause);
  if (!explanation.fix.empty()) finding.fix = std::move(explanation.fix);
  if (explanation.precedence) finding.precedence = *explanation.precedence;
  finding.culprit = std::move(explanation.culprit);
  finding.contexts = {stray.at()};
  return finding;
}

std::vector<std::size_t> strays_to_explain(const Run& run) {
  std::vector<std::size_t> strays;
  for (std::size_t i = 0; i < run.contexts.size() && strays.size() < kMostExplained; ++i)
    if (run.contexts[i].stray) strays.push_back(i);
  return strays;
}

Outcome explain_strays(const Run& run, const Rule& rule,
                       std::optional<Explanation> (*explain)(const Stray&), Found found) {
  Outcome outcome;
  for (const std::size_t i : strays_to_explain(run)) {
    if (run.contexts[i].found && found == Found::left_out) continue;
    const Stray stray(run, i);
    if (auto explanation = explain(stray))
      outcome.findings.push_back(finding_about(rule, stray, std::move(*explanation)));
  }
  return outcome;
}

Meant meant_device(const Stray& stray) {
  if (stray.run().expectation.kind == snapshot::Expectation::Kind::rank) {
    const auto rank = local_rank(stray);
    Meant meant;
    if (rank) meant.ordinal = rank->value;
    for (const Context& context : stray.run().contexts)
      if (rank && context.pid == stray.context().pid && context.ordinal == rank->value)
        meant.gpu = context.gpu;
    return meant;
  }
  Meant meant;
  meant.gpu = meant_gpu(stray);
  if (meant.gpu) meant.ordinal = ordinal_of(stray, *meant.gpu);
  return meant;
}

std::string meant_number(const Stray& stray) {
  const auto ordinal = meant_device(stray).ordinal;
  return ordinal ? std::to_string(*ordinal) : "N";
}

std::optional<Rank> local_rank(const Stray& stray) {
  const Init* init = stray.init();
  if (init == nullptr) return std::nullopt;
  const auto variable = local_rank_variable(*init);
  if (!variable) return std::nullopt;
  const auto value = parse_number<int>(variable->second);
  if (!value) return std::nullopt;
  return Rank{.variable = variable->first, .value = *value};
}

std::string place(const PythonFrame& frame) {
  return fmt::format("{}:{}", printable(frame.file),
                     frame.line ? std::to_string(*frame.line) : "?");
}

}  // namespace corral::rules

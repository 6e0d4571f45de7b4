// SPDX-License-Identifier: Apache-2.0
// A framework that makes a context on every GPU that it sees when it starts.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "rules/context_words.h"
#include "rules/current_device.h"
#include "snapshot/from_trace.h"

namespace corral::rules {
namespace {

using snapshot::Context;
using snapshot::PythonFrame;

Outcome check(const snapshot::Run& run);

const Registered<Rule> rule{
    Rule{.id = "stray.framework-opens-all",
         .severity = Severity::error,
         .summary = "a framework that opens every visible GPU when it starts",
         .cause = "JAX and TensorFlow make a context on every GPU that they see when their backend "
                  "starts; where arrays are put is decided later.",
         .verify = "nvidia-smi lists the process on every GPU right after that line.",
         .fix = "Show the process only the GPUs that it may use: corral run --gpus, or export "
                "CUDA_VISIBLE_DEVICES before Python starts.",
         .precedence = Precedence::thread,
         .check = check}};

struct Known {
  std::string_view name;
  // Below site-packages: a folder of the user's may have the framework's name, too.
  std::array<std::string_view, 3> modules;
  std::string_view python;  // its file that starts the backend
};
constexpr std::array<Known, 2> kKnown = {{
    {.name = "JAX",
     .modules = {"-packages/jax_plugins/", "-packages/jaxlib/", "/xla_cuda_plugin.so"},
     .python = "jax/_src/xla_bridge.py"},
    {.name = "TensorFlow",
     .modules = {"-packages/tensorflow/", "/libtensorflow_cc.so", "/libtensorflow_framework.so"},
     .python = "tensorflow/python/eager/context.py"},
}};

bool is_made_by(const Context& context, const Known& framework) {
  return std::ranges::any_of(context.stack.native, [&](const snapshot::NativeFrame& frame) {
    return std::ranges::any_of(framework.modules, [&](std::string_view part) {
      return frame.module.find(part) != std::string::npos;
    });
  });
}

std::set<unsigned> opened(const Stray& stray, const Known& framework) {
  std::set<unsigned> gpus;
  for (const Context& context : stray.run().contexts)
    if (context.pid == stray.context().pid && context.gpu && is_made_by(context, framework))
      gpus.insert(*context.gpu);
  return gpus;
}

bool stands_in(const Stray& stray, const std::vector<PythonFrame>& frames, std::string_view file) {
  return std::ranges::any_of(
      frames, [&](const PythonFrame& frame) { return stray.library_file(frame) == file; });
}

// The line that started the backend: of the stack in which the backend's own file stands.
std::optional<PythonFrame> starter(const Stray& stray, const Known& framework) {
  const snapshot::Stack& stack = stray.context().stack;
  const std::vector<PythonFrame>* at = nullptr;
  if (stands_in(stray, stack.python, framework.python)) at = &stack.python;
  if (at == nullptr && stands_in(stray, stack.main_thread, framework.python))
    at = &stack.main_thread;
  if (at == nullptr && stray.init() != nullptr &&
      stands_in(stray, stray.init()->stack.python, framework.python))
    at = &stray.init()->stack.python;
  if (at == nullptr) return std::nullopt;
  auto line = snapshot::culprit_of(*at);
  return line && snapshot::is_own_code(line->file) ? line : std::nullopt;
}

std::optional<Explanation> explain(const Stray& stray) {
  for (const Known& framework : kKnown) {
    if (!is_made_by(stray.context(), framework)) continue;
    const std::set<unsigned> gpus = opened(stray, framework);
    if (gpus.size() < 2) return std::nullopt;
    Explanation out;
    out.culprit = starter(stray, framework);
    out.evidence.push_back(
        fmt::format("{} made contexts on {} GPUs in this process", framework.name, gpus.size()));
    out.cause = fmt::format(
        "{} makes a context on every GPU that it sees when its backend starts, at the first call "
        "that needs it; where arrays are put is decided later.",
        framework.name);
    const std::string n = meant_number(stray);
    const std::string in_the_job =
        framework.name == "JAX"
            ? fmt::format(
                  "jax.config.update(\"jax_cuda_visible_devices\", \"{}\") before the first "
                  "JAX call",
                  n)
            : std::string("tf.config.set_visible_devices() before anything else of TensorFlow");
    out.fix = fmt::format("{}, or export CUDA_VISIBLE_DEVICES before Python starts; or {}.",
                          how_to_confine(stray.run()), in_the_job);
    return out;
  }
  return std::nullopt;
}

Outcome check(const snapshot::Run& run) { return explain_strays(run, rule.value(), explain); }

}  // namespace
}  // namespace corral::rules

// SPDX-License-Identifier: Apache-2.0
// A context for sharing with OpenGL, whose devices CUDA_VISIBLE_DEVICES does not hide.
#include "rules/context_words.h"
#include "rules/current_device.h"

namespace corral::rules {
namespace {

Outcome check(const snapshot::Run& run);

const Registered<Rule> rule{Rule{
    .id = "stray.graphics-client",
    .severity = Severity::error,
    .summary = "a context made for OpenGL or VDPAU",
    .cause = "The context was made for sharing with OpenGL or VDPAU. Graphics have a list of "
             "devices of their own, which CUDA_VISIBLE_DEVICES does not bind, and begin with the "
             "first.",
    .verify = "nvidia-smi shows the process with type C+G.",
    .fix = "Choose the device of the graphics too (EGL: the one whose EGL_CUDA_DEVICE_NV is the "
           "job's), or hide the other GPUs' nodes: corral run --gpus.",
    .precedence = Precedence::call,
    .check = check}};

std::optional<Explanation> explain(const Stray& stray) {
  const std::string& call = stray.context().call;
  if (!call.starts_with("cuGLCtxCreate") && !call.starts_with("cuVDPAUCtxCreate"))
    return std::nullopt;
  Explanation out;
  out.fix =
      "Choose the device of the graphics too (EGL: the one whose EGL_CUDA_DEVICE_NV is the job's), "
      "or hide the other GPUs' nodes: " +
      how_to_confine(stray.run()) + ".";
  return out;
}

Outcome check(const snapshot::Run& run) {
  return explain_strays(run, rule.value(), explain, Found::taken);
}

}  // namespace
}  // namespace corral::rules

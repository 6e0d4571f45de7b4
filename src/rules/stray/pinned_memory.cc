// SPDX-License-Identifier: Apache-2.0
// Page-locked host memory, which belongs to a context of some device.
#include <fmt/format.h>

#include "rules/current_device.h"
#include "snapshot/from_trace.h"

namespace corral::rules {
namespace {

using snapshot::PythonFrame;

Outcome check(const snapshot::Run& run);

const Registered<Rule> rule{Rule{
    .id = "stray.pinned-memory",
    .severity = Severity::error,
    .summary = "pinned host memory before a device was chosen",
    .cause = "Page-locked host memory needs a context, though nothing is copied to a GPU yet. "
             "Before the process has one, pinning makes it on the current device, which is "
             "device 0 until another is chosen.",
    .verify = "Swap the order: with a first tensor on the right GPU above it, the context is gone.",
    .fix = "Choose the device before the first pinned memory.",
    .precedence = Precedence::call,
    .check = check}};

constexpr std::string_view kPinThread = "torch/utils/data/_utils/pin_memory.py";

bool in_main_thread_frames(const Stray& stray, std::string_view file) {
  for (const PythonFrame& frame : stray.context().stack.main_thread)
    if (stray.library_file(frame) == file) return true;
  return false;
}

// The pin thread has no line of the user's. The loop over the loader is on the main thread, and
// only while that stands in the loader is its line the loop's.
void blame_the_loop(const Stray& stray, Explanation& out) {
  const auto& main_thread = stray.context().stack.main_thread;
  const auto line = snapshot::culprit_of(main_thread);
  out.evidence.emplace_back("made by the pin thread of a DataLoader(pin_memory=True)");
  if (line && snapshot::is_own_code(line->file) &&
      in_main_thread_frames(stray, "torch/utils/data/dataloader.py")) {
    out.culprit = *line;
    return;
  }
  out.evidence.emplace_back(
      line && snapshot::is_own_code(line->file)
          ? fmt::format("the main thread was then at {}; look for the loop over the loader",
                        place(*line))
          : "no line of the job is in the record: look for the loop over the loader");
}

// Without names of native functions: the text of the line, and that nothing else can have needed
// a context on device 0, for PyTorch pins through one that is there.
bool pins_by_text(const Stray& stray) {
  return stray.statement() != nullptr && stray.library().empty() &&
         stray.statement()->has_name("pin_memory") && stray.context().ordinal == 0 &&
         stray.in_module("/torch/lib/libtorch_cuda.so") && stray.earlier().empty();
}

std::optional<Explanation> explain(const Stray& stray) {
  const std::string n = meant_number(stray);
  Explanation out;
  if (stray.find_anywhere(kPinThread, {"pin_memory", "_pin_memory_loop", "do_one_step"}) !=
          nullptr &&
      stray.own() == nullptr) {
    blame_the_loop(stray, out);
    out.fix = fmt::format(
        "torch.cuda.set_device({}) before the loader is iterated, in the thread that iterates it.",
        n);
    return out;
  }
  if (stray.in_module("/cupy/cuda/pinned_memory.")) {
    out.fix = fmt::format("cupy.cuda.Device({}).use() before the first pinned array.", n);
    return out;
  }
  const bool by_name =
      stray.in_function({"cudaHostAlloc", "cudaMallocHost", "cudaHostRegister", "cuMemHostAlloc",
                         "cuMemAllocHost_v2", "cuMemHostRegister_v2"});
  // NCCL pins memory for itself, in a collective of whoever called it.
  if ((!by_name && !pins_by_text(stray)) || stray.in_module("/libnccl.so")) return std::nullopt;
  if (stray.in_module("/torch/lib/libc10_cuda.so") ||
      stray.in_module("/torch/lib/libtorch_cuda.so"))
    out.fix = fmt::format("torch.cuda.set_device({}) above that line.", n);
  return out;
}

Outcome check(const snapshot::Run& run) { return explain_strays(run, rule.value(), explain); }

}  // namespace
}  // namespace corral::rules

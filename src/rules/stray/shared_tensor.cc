// SPDX-License-Identifier: Apache-2.0
// A CUDA tensor that came from another process and was rebuilt on its sender's GPU.
#include "rules/current_device.h"

namespace corral::rules {
namespace {

Outcome check(const snapshot::Run& run);

const Registered<Rule> rule{Rule{
    .id = "stray.shared-tensor",
    .severity = Severity::error,
    .summary = "a tensor of another process, rebuilt on its sender's GPU",
    .cause =
        "A CUDA tensor that is sent through a queue, a pickle or a collective of objects comes "
        "to life on the device that it had in its sender, and the receiver makes a context "
        "there.",
    .verify = "Print the device of the received tensor.",
    .fix = "Send .cpu() tensors and move them in the receiver, or use collectives of tensors "
           "(all_gather in place of all_gather_object).",
    .precedence = Precedence::call,
    .check = check}};

std::optional<Explanation> explain(const Stray& stray) {
  Explanation out;
  if (stray.find("torch/multiprocessing/reductions.py",
                 {"rebuild_cuda_tensor", "rebuild_storage_cuda"}) != nullptr) {
    out.evidence.emplace_back("opened the shared memory of another process (CUDA IPC)");
    return out;
  }
  if (stray.find("torch/storage.py", {"_load_from_bytes"}) == nullptr) return std::nullopt;
  out.evidence.emplace_back(
      stray.find("torch/distributed/distributed_c10d.py", {"_tensor_to_object"}) != nullptr
          ? "rebuilt from the bytes of a collective of objects"
          : "rebuilt from a pickle");
  return out;
}

Outcome check(const snapshot::Run& run) { return explain_strays(run, rule.value(), explain); }

}  // namespace
}  // namespace corral::rules

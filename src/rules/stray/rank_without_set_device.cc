// SPDX-License-Identifier: Apache-2.0
// A rank whose collective made a context because the rank had not said which GPU is its own.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "rules/current_device.h"

namespace corral::rules {
namespace {

using snapshot::PythonFrame;

Outcome check(const snapshot::Run& run);

const Registered<Rule> rule{Rule{
    .id = "stray.rank-without-set-device",
    .severity = Severity::error,
    .summary = "a collective of a rank that had not chosen its GPU",
    .cause = "torch.distributed works on the current device where a call names none: barrier() and "
             "the collectives of objects make a tensor there. That is cuda:0 in every rank that "
             "has not called torch.cuda.set_device().",
    .verify = "Print torch.cuda.current_device() and the local rank above that line, in each rank.",
    .fix = "torch.cuda.set_device(local_rank) as the first CUDA line of each rank; or "
           "init_process_group(..., device_id=torch.device(\"cuda\", local_rank)); or "
           "barrier(device_ids=[local_rank]).",
    .precedence = Precedence::call,
    .check = check}};

const PythonFrame* collective(const Stray& stray) {
  const auto frames = stray.library();
  for (std::size_t i = 0; i < frames.size() && i < 2; ++i)
    if (stray.is(frames[i], "torch/distributed/distributed_c10d.py",
                 {"barrier", "monitored_barrier", "all_gather_object", "gather_object",
                  "broadcast_object_list", "scatter_object_list", "send_object_list",
                  "recv_object_list", "_object_to_tensor", "init_process_group",
                  "destroy_process_group", "new_group", "_new_process_group_helper"}))
      return &frames[i];
  return nullptr;
}

// Whether the line that makes the call can be read at all.
bool is_shown(const Stray& stray, const PythonFrame& call) {
  return stray.statement() != nullptr &&
         std::ranges::count(stray.statement()->tokens, call.function, &Token::value) == 1;
}

// Whether the user's own call names a device: then the rank did what it was told.
bool names_one(const Stray& stray) {
  const Statement* statement = stray.statement();
  return statement != nullptr &&
         (statement->has_name("device_ids") || statement->has_name("device_id") ||
          statement->has_name("device"));
}

std::optional<Explanation> explain(const Stray& stray) {
  const PythonFrame* frame = collective(stray);
  if (frame == nullptr || names_one(stray)) return std::nullopt;
  const auto rank = local_rank(stray);
  if (rank && stray.context().ordinal == rank->value) return std::nullopt;
  Explanation out;
  if (!is_shown(stray, *frame))
    out.evidence.emplace_back("whether the call names a device cannot be read from the line");
  if (rank && stray.context().ordinal)
    out.evidence.push_back(fmt::format("{}={}, and the context is on device {}", rank->variable,
                                       rank->value, *stray.context().ordinal));
  return out;
}

Outcome check(const snapshot::Run& run) { return explain_strays(run, rule.value(), explain); }

}  // namespace
}  // namespace corral::rules

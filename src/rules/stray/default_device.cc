// SPDX-License-Identifier: Apache-2.0
// Memory taken on the current device, which is device 0 until another one is chosen.
#include <fmt/format.h>

#include "rules/current_device.h"

namespace corral::rules {
namespace {

Outcome check(const snapshot::Run& run);

const Registered<Rule> rule{
    Rule{.id = "stray.default-device",
         .severity = Severity::error,
         .summary = "a call without a device number",
         .cause = "The call took memory on device 0: it was given no device number, and then the "
                  "current device is used, which is 0 in every new process and thread.",
         .verify = "Print the current device above that line (torch.cuda.current_device(), "
                   "cupy.cuda.Device()).",
         .fix = "Name the device in the call, or choose it once at the start.",
         .precedence = Precedence::general,
         .check = check}};

// Where the number cannot be read from the line, both ways to get there are told.
constexpr std::string_view kEither =
    "The call took memory on device 0. Either it was given no device number, and then the current "
    "device is used, which is 0 in every new process and thread; or what it was given says 0.";

std::optional<unsigned> line_of_default(const Stray& stray) {
  const auto source = source_of(stray.run(), stray.context().pid, stray.own()->file);
  if (!source) return std::nullopt;
  for (const Statement& statement : source->statements)
    if (statement.calls_any({"set_default_device", "set_default_tensor_type"}))
      return statement.first_line;
  return std::nullopt;
}

void tell_where_the_device_is_from(const Stray& stray, Framework framework, Explanation& out) {
  const auto at = [&](unsigned line) {
    return place({.file = stray.own()->file, .line = line, .function = {}});
  };
  if (stray.find("torch/utils/_device.py", {"__torch_function__"}) != nullptr) {
    const auto line = line_of_default(stray);
    out.evidence.push_back(line ? "the default device was set at " + at(*line)
                                : "a default device is set (torch.set_default_device)");
    return;
  }
  if (framework != Framework::torch) return;
  const DeviceText text = device_text(stray);
  if (text.says != DeviceText::Says::bare)
    out.cause = kEither;
  else if (text.line != stray.statement()->first_line)
    out.evidence.push_back("the device, without a number, is from " + at(text.line));
}

std::string fix_for(const Stray& stray, Framework framework) {
  const std::string n = meant_number(stray);
  switch (framework) {
    case Framework::cupy:
      return fmt::format("cupy.cuda.Device({}).use() before the first array.", n);
    case Framework::numba:
      return fmt::format("numba.cuda.select_device({}) before the first array.", n);
    case Framework::torch:
      break;
  }
  if (stray.find_anywhere("torch/utils/data/_utils/worker.py", {"_worker_loop"}) != nullptr)
    return "Give CPU tensors out of the loader's workers, which are processes of their own, and "
           "move the batch in the training loop.";
  return fmt::format(
      "Name the device (\"cuda:{}\"), or torch.cuda.set_device({}) once at the start.", n, n);
}

std::optional<Explanation> explain(const Stray& stray) {
  if (stray.context().ordinal != 0 || had_chosen(stray)) return std::nullopt;
  const auto framework = allocates(stray);
  if (!framework) return std::nullopt;
  const DeviceText::Says says = device_text(stray).says;
  if (says == DeviceText::Says::number || says == DeviceText::Says::computed) return std::nullopt;
  Explanation out;
  tell_where_the_device_is_from(stray, *framework, out);
  out.fix = fix_for(stray, *framework);
  return out;
}

Outcome check(const snapshot::Run& run) { return explain_strays(run, rule.value(), explain); }

}  // namespace
}  // namespace corral::rules

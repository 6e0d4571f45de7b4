// SPDX-License-Identifier: Apache-2.0
#include "rules/current_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "snapshot/from_trace.h"

namespace corral::rules {
namespace {

using snapshot::PythonFrame;

// Python of PyTorch that stands between the user's line and an allocation, and adds no device.
bool passes_on(const Stray& stray, const PythonFrame& frame) {
  return stray.is(frame, "torch/nn/modules/module.py",
                  {"cuda", "to", "convert", "_apply", "<lambda>"}) ||
         stray.is(frame, "torch/utils/_device.py", {"__torch_function__"}) ||
         stray.is(frame, "torch/_tensor.py", {"__torch_function__", "__rsub__", "__rdiv__"}) ||
         stray.library_file(frame) == "torch/amp/grad_scaler.py" ||
         stray.library_file(frame) == "torch/functional.py";
}

bool torch_allocates(const Stray& stray) {
  // The allocator of host memory is in libtorch_cuda.so alone.
  if (!stray.in_module("/torch/lib/libc10_cuda.so")) return false;
  if (stray.library().empty()) return true;
  const PythonFrame& innermost = stray.library().front();
  const std::string_view file = stray.library_file(innermost);
  if (file.starts_with("torch/")) return passes_on(stray, innermost);
  // A library of others that calls PyTorch: known to be a library, and not the standard one.
  return !file.empty();
}

bool cupy_allocates(const Stray& stray) {
  return stray.in_module("/cupy/cuda/memory.") &&
         std::ranges::all_of(stray.library(), [&](const PythonFrame& frame) {
           return stray.library_file(frame).starts_with("cupy/");
         });
}

bool numba_attaches(const Stray& stray) {
  for (const char* file :
       {"numba/cuda/cudadrv/devices.py", "numba_cuda/numba/cuda/cudadrv/devices.py"})
    if (stray.find(file, {"_get_or_create_context_uncached"}) != nullptr) return true;
  return false;
}

// Whether a call is given a device or a stream: by keyword, or as its first argument.
bool gives_device(std::span<const Token> arguments) {
  if (arguments.empty()) return false;
  for (std::size_t i = 0; i + 1 < arguments.size(); ++i)
    if (arguments[i + 1].value == "=" &&
        (arguments[i].value == "device" || arguments[i].value == "stream"))
      return true;
  return arguments.size() == 1 || arguments[1].value != "=";
}

bool given_device_by_user(const Stray& stray, std::initializer_list<std::string_view> functions) {
  if (stray.statement() == nullptr) return false;
  return std::ranges::any_of(functions, [&](std::string_view function) {
    const auto arguments = stray.statement()->arguments_of(function);
    return arguments && gives_device(*arguments);
  });
}

// The innermost library frame, past the guard that PyTorch puts around a device.
const PythonFrame* innermost_past_guard(const Stray& stray) {
  const auto frames = stray.library();
  if (frames.empty()) return nullptr;
  if (frames.size() > 1 && stray.is(frames[0], "torch/cuda/__init__.py", {"__enter__"}))
    return &frames[1];
  return &frames[0];
}

bool is_of_framework(std::string_view file) {
  return std::ranges::any_of(std::array{"torch/", "cupy/", "numba/", "numba_cuda/"},
                             [&](const char* package) { return file.starts_with(package); });
}

// Frames of decorators: contextlib's __enter__.
bool is_standard_wrapper(const PythonFrame& frame) {
  return frame.file.ends_with("/contextlib.py") && !snapshot::is_own_code(frame.file);
}

using Says = DeviceText::Says;
using Kind = Token::Kind;

// What one call of .cuda(…), Device(…), set_device(…) with these arguments says.
Says argument_says(std::span<const Token> arguments, const std::string& number, bool may_be_bare) {
  if (arguments.empty()) return may_be_bare ? Says::bare : Says::unknown;
  if (arguments.size() > 1 && arguments[1].value == "=")
    return may_be_bare && arguments[0].value != "device" ? Says::bare : Says::unknown;
  if (arguments.size() > 1 || arguments[0].kind != Kind::number) return Says::computed;
  return arguments[0].value == number ? Says::number : Says::unknown;
}

// torch.device("cuda"), torch.device("cuda", 0), "cuda:0", f"cuda:{rank}".
Says text_says(std::span<const Token> tokens, std::size_t i, const std::string& number) {
  const std::string& text = tokens[i].value;
  if (text == "cuda:" + number) return Says::number;
  if (text.starts_with("cuda:"))
    return text.find('{') != text.npos ? Says::computed : Says::unknown;
  if (text != "cuda") return Says::unknown;
  const bool pair = i >= 2 && tokens[i - 1].value == "(" && tokens[i - 2].value == "device" &&
                    i + 2 < tokens.size() && tokens[i + 1].value == ",";
  if (!pair) return Says::bare;
  if (tokens[i + 2].kind != Kind::number) return Says::computed;
  return tokens[i + 2].value == number ? Says::number : Says::unknown;
}

Says statement_says(const Statement& statement, int ordinal) {
  const std::string number = std::to_string(ordinal);
  const std::span<const Token> tokens = statement.tokens;
  std::vector<Says> said;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].kind == Kind::text) said.push_back(text_says(tokens, i, number));
    if (i > 1 && tokens[i] == Token{.kind = Kind::number, .value = number} &&
        tokens[i - 1].value == "=" && tokens[i - 2].value == "device")
      said.push_back(Says::number);
  }
  if (const auto arguments = statement.arguments_of("cuda"))
    said.push_back(argument_says(*arguments, number, true));
  for (const std::string_view function :
       {"Device", "set_device", "select_device", "cudaSetDevice", "setDevice"})
    if (const auto arguments = statement.arguments_of(function))
      said.push_back(argument_says(*arguments, number, false));
  std::erase(said, Says::unknown);
  if (said.empty() || std::ranges::any_of(said, [&](Says s) { return s != said.front(); }))
    return Says::unknown;
  return said.front();
}

bool assigns(const Statement& statement, std::string_view variable) {
  const auto& tokens = statement.tokens;
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    if (tokens[i].kind != Token::Kind::name || tokens[i].value != variable) continue;
    if (tokens[i + 1].value == "=" && (i == 0 || tokens[i - 1].value == ".")) return true;
  }
  return false;
}

}  // namespace

std::optional<Framework> allocates(const Stray& stray) {
  if (stray.own() == nullptr) return std::nullopt;
  if (torch_allocates(stray)) return Framework::torch;
  if (cupy_allocates(stray)) return Framework::cupy;
  if (numba_attaches(stray)) return Framework::numba;
  return std::nullopt;
}

bool synchronizes_current_device(const Stray& stray) {
  const PythonFrame* frame = innermost_past_guard(stray);
  if (frame == nullptr || stray.context().ordinal != 0 || had_chosen(stray)) return false;
  if (!stray.is(*frame, "torch/cuda/__init__.py", {"synchronize"}) &&
      !stray.is(*frame, "torch/accelerator/__init__.py", {"synchronize"}))
    return false;
  return &stray.library().back() != frame || !given_device_by_user(stray, {"synchronize"});
}

bool makes_stream_or_event(const Stray& stray) {
  const PythonFrame* frame = innermost_past_guard(stray);
  if (frame == nullptr || stray.context().ordinal != 0 || had_chosen(stray)) return false;
  if (!stray.is(*frame, "torch/cuda/streams.py", {"__new__", "record", "record_event"}) &&
      !stray.is(*frame, "torch/cuda/__init__.py", {"current_stream", "default_stream"}))
    return false;
  return &stray.library().back() != frame ||
         !given_device_by_user(stray, {"Stream", "Event", "record", "record_event",
                                       "current_stream", "default_stream"});
}

DeviceText device_text(const Stray& stray) {
  if (stray.statement() == nullptr || !stray.context().ordinal) return {};
  // What the line says counts where it made the call itself, and not a library that it called.
  for (const PythonFrame& frame : stray.library())
    if (!is_of_framework(stray.library_file(frame)) && !is_standard_wrapper(frame)) return {};
  const Statement& statement = *stray.statement();
  const Says direct = statement_says(statement, *stray.context().ordinal);
  if (direct != Says::unknown) return {.says = direct, .line = statement.first_line};
  const auto source = source_of(stray.run(), stray.context().pid, stray.own()->file);
  DeviceText found;
  for (const Token& token : statement.tokens) {
    if (token.kind != Kind::name) continue;
    std::vector<const Statement*> assigned;
    for (const Statement& s : source->statements)
      if (assigns(s, token.value)) assigned.push_back(&s);
    if (assigned.size() != 1 || assigned[0]->first_line == statement.first_line) continue;
    // A variable that holds a tensor says nothing of the device of another: only one that is named
    // like a device does.
    if (token.value.find("dev") == std::string::npos) continue;
    const Says says = statement_says(*assigned[0], *stray.context().ordinal);
    if (says == Says::unknown) continue;
    if (found.says != Says::unknown && found.line != assigned[0]->first_line) return {};
    found = {.says = says, .line = assigned[0]->first_line};
  }
  return found;
}

bool had_chosen(const Stray& stray) {
  return std::ranges::any_of(stray.earlier(), [&](const snapshot::Context* other) {
    return other->tid != 0 && other->tid == stray.context().tid && other->ordinal &&
           *other->ordinal != 0 && !other->stack.python.empty() &&
           stray.is(other->stack.python.front(), "torch/cuda/__init__.py", {"set_device"});
  });
}

}  // namespace corral::rules

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

ByDefault told_by_line(const Stray& stray, std::initializer_list<std::string_view> functions) {
  if (stray.statement() == nullptr) return ByDefault::unknown;
  ByDefault found = ByDefault::unknown;
  for (const std::string_view function : functions) {
    const auto arguments = stray.statement()->arguments_of(function);
    if (!arguments) continue;
    if (gives_device(*arguments)) return ByDefault::no;
    // Of two calls in a line it may have been the other.
    const bool once = std::ranges::count(stray.statement()->tokens, function, &Token::value) == 1;
    if (once) found = ByDefault::yes;
  }
  return found;
}

// A library that makes the call for the user's line may have given it a device.
ByDefault told_of(const Stray& stray, const PythonFrame& call,
                  std::initializer_list<std::string_view> functions) {
  return &stray.library().back() == &call ? told_by_line(stray, functions) : ByDefault::unknown;
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

using Tokens = std::span<const Token>;

bool is_sign(Tokens tokens, std::size_t i, std::string_view value) {
  return i < tokens.size() && tokens[i].kind == Kind::sign && tokens[i].value == value;
}

// The variable whose last name is at `i`: device, or self.device. Empty: a keyword or a function,
// or part of what is not a plain name.
Tokens variable_at(Tokens tokens, std::size_t i) {
  if (tokens[i].kind != Kind::name || is_sign(tokens, i + 1, "(") || is_sign(tokens, i + 1, "=") ||
      is_sign(tokens, i + 1, "."))
    return {};
  if (i == 0 || !is_sign(tokens, i - 1, ".")) return tokens.subspan(i, 1);
  const bool plain = i > 1 && tokens[i - 2].kind == Kind::name && !is_sign(tokens, i - 3, ".");
  return plain ? tokens.subspan(i - 2, 3) : Tokens();
}

// Whether it stands where `for`, `as` or `lambda` name what they bind.
bool names_target(Tokens tokens, Tokens variable) {
  bool targets = false;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string& word = tokens[i].value;
    if (tokens[i].kind == Kind::name && (word == "for" || word == "as" || word == "lambda"))
      targets = true;
    else if (word == "in" || word == ":")
      targets = false;
    else if (targets && tokens[i] == variable.front())
      return true;
  }
  return false;
}

enum class Binds { no, by_assignment, otherwise };

// Whether the statement gives the variable a value: `device = …`, or in a way that is not read.
Binds binds(const Statement& statement, Tokens variable, std::string_view scope) {
  const Tokens tokens = statement.tokens;
  const auto found = std::ranges::search(tokens, variable);
  if (found.empty()) return Binds::no;
  const auto has = [&](std::string_view word) { return statement.has_name(word); };
  if (has("global") || has("nonlocal")) return Binds::otherwise;
  if (has("def")) return has(scope) ? Binds::otherwise : Binds::no;  // a parameter of it
  if (variable.size() == 1 && statement.scope != scope && statement.scope != "<module>")
    return Binds::no;
  if (found.begin() == tokens.begin() && is_sign(tokens, variable.size(), "="))
    return Binds::by_assignment;
  if (has("import") || names_target(tokens, variable)) return Binds::otherwise;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (is_sign(tokens, i, "(")) break;  // an argument, or a keyword
    if (tokens[i].kind == Kind::sign && tokens[i].value.ends_with('=') && tokens[i].value != "==" &&
        found.begin() - tokens.begin() < static_cast<std::ptrdiff_t>(i))
      return Binds::otherwise;  // one of several targets, or with a type
  }
  const bool named = std::ranges::any_of(
      tokens, [](const Token& token) { return token.kind == Kind::sign && token.value == ":="; });
  return named ? Binds::otherwise : Binds::no;
}

// The only statement of the file that can have given the variable its value; nullptr: not known.
const Statement* only_assignment(std::span<const Statement> statements, Tokens variable,
                                 std::string_view scope) {
  const Statement* only = nullptr;
  for (const Statement& statement : statements) {
    const Binds how = binds(statement, variable, scope);
    if (how == Binds::otherwise || (how == Binds::by_assignment && only != nullptr)) return nullptr;
    if (how == Binds::by_assignment) only = &statement;
  }
  return only;
}

}  // namespace

std::optional<Framework> allocates(const Stray& stray) {
  if (stray.own() == nullptr) return std::nullopt;
  if (torch_allocates(stray)) return Framework::torch;
  if (cupy_allocates(stray)) return Framework::cupy;
  if (numba_attaches(stray)) return Framework::numba;
  return std::nullopt;
}

ByDefault synchronizes_current_device(const Stray& stray) {
  const PythonFrame* frame = innermost_past_guard(stray);
  if (frame == nullptr || stray.context().ordinal != 0 || had_chosen(stray)) return ByDefault::no;
  if (!stray.is(*frame, "torch/cuda/__init__.py", {"synchronize"}) &&
      !stray.is(*frame, "torch/accelerator/__init__.py", {"synchronize"}))
    return ByDefault::no;
  return told_of(stray, *frame, {"synchronize"});
}

ByDefault makes_stream_or_event(const Stray& stray) {
  const PythonFrame* frame = innermost_past_guard(stray);
  if (frame == nullptr || stray.context().ordinal != 0 || had_chosen(stray)) return ByDefault::no;
  if (!stray.is(*frame, "torch/cuda/streams.py", {"__new__", "record", "record_event"}) &&
      !stray.is(*frame, "torch/cuda/__init__.py", {"current_stream", "default_stream"}))
    return ByDefault::no;
  return told_of(stray, *frame,
                 {"Stream", "Event", "record", "record_event", "current_stream", "default_stream"});
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
  for (std::size_t i = 0; i < statement.tokens.size(); ++i) {
    // A variable that holds a tensor says nothing of the device of another: only one that is named
    // like a device does.
    if (statement.tokens[i].value.find("dev") == std::string::npos) continue;
    const Tokens variable = variable_at(statement.tokens, i);
    if (variable.empty()) continue;
    const Statement* assigned = only_assignment(source->statements, variable, statement.scope);
    if (assigned == nullptr || assigned->first_line == statement.first_line) continue;
    const Says says = statement_says(*assigned, *stray.context().ordinal);
    if (says == Says::unknown) continue;
    if (found.says != Says::unknown && found.line != assigned->first_line) return {};
    found = {.says = says, .line = assigned->first_line};
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

// SPDX-License-Identifier: Apache-2.0
// One stray context as the rules look at it: library frames told from the user's own line, the
// text of that line, and the device that was meant. Library files are known by their path below
// site-packages or dist-packages (or below a checkout whose own native libraries are in the stack),
// never by a name that a user's file may have too; lines are never looked at, for they change with
// each version.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rules/python_source.h"
#include "rules/rule.h"
#include "snapshot/run.h"

namespace corral::rules {

class Stray {
 public:
  Stray(const snapshot::Run& run, std::size_t at);

  const snapshot::Run& run() const { return run_; }
  const snapshot::Context& context() const { return context_; }
  std::size_t at() const { return at_; }  // in run.contexts

  // Innermost frame first: those between the call and the user's own code; all, when none is the
  // user's.
  std::span<const snapshot::PythonFrame> library() const { return library_; }
  // The user's line that led here, on the thread of the call; nullptr: the stack has none.
  const snapshot::PythonFrame* own() const { return own_; }
  // Its statement; nullptr when its file was not read.
  const Statement* statement() const { return statement_; }
  // Its text without the blanks around it; empty when its file was not read.
  std::string_view own_text() const { return own_text_; }

  // "torch/cuda/__init__.py" of a library's file; empty for any other.
  std::string_view library_file(const snapshot::PythonFrame& frame) const;
  bool is(const snapshot::PythonFrame& frame, std::string_view library_file,
          std::initializer_list<std::string_view> functions) const;
  // The innermost such frame of library(), and of the whole stack; nullptr: there is none.
  const snapshot::PythonFrame* find(std::string_view library_file,
                                    std::initializer_list<std::string_view> functions) const;
  const snapshot::PythonFrame* find_anywhere(
      std::string_view library_file, std::initializer_list<std::string_view> functions) const;
  // Likewise for the standard library: "threading.py", in the whole stack.
  const snapshot::PythonFrame* find_standard(
      std::string_view file, std::initializer_list<std::string_view> functions) const;

  // Whether a native frame is in a module with this in its path: "/torch/lib/libc10_cuda.so".
  bool in_module(std::string_view part) const;
  // Whether a native frame has one of these names, where names are known.
  bool in_function(std::initializer_list<std::string_view> functions) const;

  bool on_main_thread() const { return context_.thread == "MainThread"; }
  // Contexts of the same process that were made before this one, in the order of time.
  std::vector<const snapshot::Context*> earlier() const;
  // The cuInit that counted for the process; nullptr: not seen.
  const snapshot::Init* init() const;

 private:
  void split_frames();
  void read_source();

  const snapshot::Run& run_;
  std::size_t at_;
  const snapshot::Context& context_;
  std::string checkout_;  // folder that holds torch/, when it is imported from its own sources
  std::span<const snapshot::PythonFrame> library_;
  const snapshot::PythonFrame* own_ = nullptr;
  std::vector<Statement> statements_;
  const Statement* statement_ = nullptr;
  std::string_view own_text_;
};

// The file's statements and text, when it was read.
struct Source {
  std::string_view text;
  std::vector<Statement> statements;
};
std::optional<Source> source_of(const snapshot::Run& run, pid_t pid, const std::string& file);

// What a rule adds to its own texts.
struct Explanation {
  std::vector<std::string> evidence;
  std::string cause;  // empty: the rule's
  std::string fix;    // empty: the rule's
  std::optional<Precedence> precedence;
  std::optional<snapshot::PythonFrame> culprit;  // where it is not the context's
};

// A context that was only found, after somebody had made it, has the stack of the finding: rules
// that read stacks must not see it.
enum class Found { left_out, taken };

// By position in run.contexts: the first strays, as many as are looked at one by one. What a rule
// does for one grows with the number of all contexts; stray.further counts the rest.
std::vector<std::size_t> strays_to_explain(const snapshot::Run& run);
constexpr std::size_t kMostExplained = 2000;

// The findings of a rule that looks at one stray at a time.
Outcome explain_strays(const snapshot::Run& run, const Rule& rule,
                       std::optional<Explanation> (*explain)(const Stray&),
                       Found found = Found::left_out);

// A finding about one context with title, origin and the text of the line.
Finding finding_about(const Rule& rule, const Stray& stray, Explanation explanation);

// The device that the process was meant to use: of its rank, or the only GPU that was given, or
// that of its own earlier work. `ordinal` is CUDA's number in the process.
struct Meant {
  std::optional<unsigned> gpu;
  std::optional<int> ordinal;
};
Meant meant_device(const Stray& stray);
// For advice: "1", or "N" where the number cannot be told.
std::string meant_number(const Stray& stray);

// The local rank of the process by its environment at cuInit: {"LOCAL_RANK", 1}.
struct Rank {
  std::string variable;
  int value = 0;
};
std::optional<Rank> local_rank(const Stray& stray);

// "train.py:88" with the whole path.
std::string place(const snapshot::PythonFrame& frame);

}  // namespace corral::rules

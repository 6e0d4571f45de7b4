// SPDX-License-Identifier: Apache-2.0
// Enough of Python's grammar to read a line that was executed: statements as tokens, without
// comments, and which of them set an environment variable. It never fails: what it does not
// understand is no statement.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace corral::rules {

struct Token {
  enum class Kind { name, number, text, sign };
  Kind kind = Kind::sign;
  std::string value;  // of a text: without prefix and quotes
  bool operator==(const Token&) const = default;
};

// One statement, or the head of a compound one, over all its lines.
struct Statement {
  unsigned first_line = 0;
  unsigned last_line = 0;
  std::size_t indent = 0;  // of its line: one and the same for the statements of a block
  std::string scope;  // name of the innermost def or class around it; "<module>" outside of all
  std::vector<Token> tokens;

  bool has_name(std::string_view name) const;
  bool has_text(std::string_view text) const;
  // The arguments of the first call of a function or method of that name, without its brackets;
  // nullopt: it is not called here.
  std::optional<std::span<const Token>> arguments_of(std::string_view function) const;
  bool calls_any(std::initializer_list<std::string_view> functions) const;
};

std::vector<Statement> statements_of(std::string_view source);

// The statement that covers a line (from 1); nullptr: none does, or several share the line.
const Statement* statement_at(std::span<const Statement> statements, unsigned line);

// The line (from 1) without the blanks around it; empty when there is none.
std::string_view line_of(std::string_view source, unsigned line);

// Whether `later` is reached whenever `earlier` was, and nothing left the block between them: no
// branch, loop or definition stands around `later` that does not stand around `earlier`.
bool follows_in_block(std::span<const Statement> statements, unsigned earlier_line,
                      unsigned later_line);

// A statement that sets an environment variable of the process: os.environ[…] = and +=,
// os.environ.update, setdefault and |=, os.putenv, and pytest's monkeypatch.setenv.
struct Assignment {
  unsigned line = 0;
  std::string scope;
  std::optional<std::string> value;  // where it is a literal
};
std::vector<Assignment> assignments_of(std::span<const Statement> statements,
                                       std::string_view variable);

}  // namespace corral::rules

// SPDX-License-Identifier: Apache-2.0
#include "rules/python_source.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "base/text.h"

namespace corral::rules {
namespace {

bool is_name_start(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

class Reader {
 public:
  explicit Reader(std::string_view source) : source_(source) {}

  std::vector<Statement> take() {
    while (at_ < source_.size()) step();
    end_statement();
    return std::move(statements_);
  }

 private:
  void step() {
    const char c = source_[at_];
    if (c == '\n') {
      ++line_;
      ++at_;
      if (depth_ == 0) end_statement();
    } else if (c == '\\' && at_ + 1 < source_.size() && source_[at_ + 1] == '\n') {
      ++line_;
      at_ += 2;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f') {
      ++at_;
    } else if (c == '#') {
      at_ = std::min(source_.find('\n', at_), source_.size());
    } else if (c == ';' && depth_ == 0) {
      ++at_;
      end_statement();
    } else {
      begin_statement();
      token(c);
      current_.last_line = line_;
    }
  }

  void token(char c) {
    if (const std::size_t quote = text_start(); quote != std::string_view::npos) {
      text(quote);
    } else if (is_name_start(c)) {
      word(Token::Kind::name, is_name_part);
    } else if (is_digit(c)) {
      word(Token::Kind::number, [](char d) { return is_name_part(d) || d == '.'; });
    } else {
      sign(c);
    }
  }

  template <class Belongs>
  void word(Token::Kind kind, Belongs belongs) {
    const std::size_t begin = at_;
    while (at_ < source_.size() && belongs(source_[at_])) ++at_;
    add(kind, source_.substr(begin, at_ - begin));
  }

  // Signs of more than one character that would else look like an assignment.
  void sign(char c) {
    static constexpr std::array<std::string_view, 14> kLong = {
        "==", "!=", "<=", ">=", ":=", "+=", "-=", "*=", "/=", "|=", "&=", "^=", "%=", "->"};
    if (c == '(' || c == '[' || c == '{') ++depth_;
    if ((c == ')' || c == ']' || c == '}') && depth_ > 0) --depth_;
    const std::string_view two = source_.substr(at_, 2);
    const std::size_t length = std::ranges::find(kLong, two) != kLong.end() ? 2 : 1;
    add(Token::Kind::sign, source_.substr(at_, length));
    at_ += length;
  }

  // Where the quote is when a text with its prefix begins here.
  std::size_t text_start() const {
    std::size_t i = at_;
    while (i < source_.size() && i < at_ + 2 &&
           std::string_view("rRbBuUfFtT").find(source_[i]) != std::string_view::npos)
      ++i;
    if (i < source_.size() && (source_[i] == '"' || source_[i] == '\'')) return i;
    return std::string_view::npos;
  }

  void text(std::size_t quote) {
    const char mark = source_[quote];
    const std::string three(3, mark);
    const bool is_long = source_.substr(quote, 3) == three;
    const std::string_view end = is_long ? std::string_view(three) : source_.substr(quote, 1);
    std::size_t i = quote + end.size();
    const std::size_t begin = i;
    while (i < source_.size() && source_.substr(i, end.size()) != end) {
      if (source_[i] == '\n' && !is_long) break;  // not closed: no Python
      if (source_[i] == '\\' && i + 1 < source_.size()) {
        if (source_[i + 1] == '\n') ++line_;
        i += 2;
        continue;
      }
      if (source_[i] == '\n') ++line_;
      ++i;
    }
    add(Token::Kind::text, source_.substr(begin, i - begin));
    at_ = std::min(i + (i < source_.size() && source_[i] != '\n' ? end.size() : 0), source_.size());
  }

  void add(Token::Kind kind, std::string_view value) {
    current_.tokens.push_back({.kind = kind, .value = std::string(value)});
  }

  void begin_statement() {
    if (!current_.tokens.empty()) return;
    const std::size_t line_start = source_.rfind('\n', at_ == 0 ? 0 : at_ - 1);
    const std::size_t indent = at_ - (line_start == std::string_view::npos ? 0 : line_start + 1);
    // A second statement of a line stands as deep as the first.
    if (line_ != last_ended_) indent_ = indent;
    while (!scopes_.empty() && scopes_.back().first >= indent_) scopes_.pop_back();
    current_.first_line = line_;
    current_.indent = indent_;
    current_.scope = scopes_.empty() ? "<module>" : scopes_.back().second;
  }

  void end_statement() {
    if (current_.tokens.empty()) return;
    std::size_t i = 0;
    if (current_.tokens[0].value == "async") i = 1;
    if (i + 1 < current_.tokens.size() &&
        (current_.tokens[i].value == "def" || current_.tokens[i].value == "class"))
      scopes_.emplace_back(indent_, current_.tokens[i + 1].value);
    last_ended_ = current_.last_line;
    statements_.push_back(std::move(current_));
    current_ = {};
  }

  std::string_view source_;
  std::size_t at_ = 0;
  unsigned line_ = 1;
  unsigned depth_ = 0;
  std::size_t indent_ = 0;
  unsigned last_ended_ = 0;
  std::vector<std::pair<std::size_t, std::string>> scopes_;  // indent of the def, its name
  Statement current_;
  std::vector<Statement> statements_;
};

using Tokens = std::span<const Token>;

bool is_sign(Tokens tokens, std::size_t i, std::string_view value) {
  return i < tokens.size() && tokens[i].kind == Token::Kind::sign && tokens[i].value == value;
}
bool is_name(Tokens tokens, std::size_t i, std::string_view value) {
  return i < tokens.size() && tokens[i].kind == Token::Kind::name && tokens[i].value == value;
}
bool is_text(Tokens tokens, std::size_t i, std::string_view value) {
  return i < tokens.size() && tokens[i].kind == Token::Kind::text && tokens[i].value == value;
}

// The literal that is the whole value at `i`: what follows must end it.
std::optional<std::string> literal(Tokens tokens, std::size_t i) {
  if (i >= tokens.size() || tokens[i].kind != Token::Kind::text) return std::nullopt;
  const bool ends = i + 1 == tokens.size() || is_sign(tokens, i + 1, ",") ||
                    is_sign(tokens, i + 1, ")") || is_sign(tokens, i + 1, "}");
  return ends ? std::optional(tokens[i].value) : std::nullopt;
}

// The tokens from behind the bracket at `open` to before the one that closes it.
Tokens inside(Tokens tokens, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < tokens.size(); ++i) {
    if (tokens[i].kind != Token::Kind::sign) continue;
    const char c = tokens[i].value[0];
    if (c == '(' || c == '[' || c == '{') ++depth;
    if ((c == ')' || c == ']' || c == '}') && --depth == 0)
      return tokens.subspan(open + 1, i - open - 1);
  }
  return tokens.subspan(std::min(open + 1, tokens.size()));
}

struct Value {
  std::optional<std::string> literal;
};

// The variable as a key of a mapping or as a keyword: {"NAME": value}, NAME=value.
std::optional<Value> entry(Tokens tokens, std::string_view variable) {
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
    if ((is_text(tokens, i, variable) && is_sign(tokens, i + 1, ":")) ||
        (is_name(tokens, i, variable) && is_sign(tokens, i + 1, "=")))
      return Value{literal(tokens, i + 2)};
  return std::nullopt;
}

// What the mapping os.environ, named at `i`, is told.
std::optional<Value> told_environ(Tokens tokens, std::size_t i, std::string_view variable) {
  if (is_sign(tokens, i + 1, "[") && is_text(tokens, i + 2, variable) &&
      is_sign(tokens, i + 3, "]")) {
    if (is_sign(tokens, i + 4, "=")) return Value{literal(tokens, i + 5)};
    if (is_sign(tokens, i + 4, "+=")) return Value{};
  }
  if (is_sign(tokens, i + 1, "|=")) return entry(tokens.subspan(i + 2), variable);
  if (!is_sign(tokens, i + 1, ".") || !is_sign(tokens, i + 3, "(")) return std::nullopt;
  if (is_name(tokens, i + 2, "setdefault") && is_text(tokens, i + 4, variable))
    return Value{literal(tokens, i + 6)};
  if (is_name(tokens, i + 2, "update")) return entry(inside(tokens, i + 3), variable);
  return std::nullopt;
}

std::optional<Value> assigned(Tokens tokens, std::string_view variable) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (is_name(tokens, i, "environ"))
      if (auto value = told_environ(tokens, i, variable)) return value;
    if ((is_name(tokens, i, "putenv") || is_name(tokens, i, "setenv")) &&
        is_sign(tokens, i + 1, "(") && is_text(tokens, i + 2, variable))
      return Value{literal(tokens, i + 4)};
  }
  return std::nullopt;
}

}  // namespace

bool Statement::has_name(std::string_view name) const {
  return std::ranges::any_of(
      tokens, [&](const Token& t) { return t.kind == Token::Kind::name && t.value == name; });
}

bool Statement::has_text(std::string_view text) const {
  return std::ranges::any_of(
      tokens, [&](const Token& t) { return t.kind == Token::Kind::text && t.value == text; });
}

std::optional<std::span<const Token>> Statement::arguments_of(std::string_view function) const {
  const Tokens all = tokens;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (is_name(all, i, function) && is_sign(all, i + 1, "(") &&
        (i == 0 || !is_name(all, i - 1, "def")))
      return inside(all, i + 1);
  return std::nullopt;
}

bool Statement::calls_any(std::initializer_list<std::string_view> functions) const {
  return std::ranges::any_of(
      functions, [&](std::string_view function) { return arguments_of(function).has_value(); });
}

std::vector<Statement> statements_of(std::string_view source) { return Reader(source).take(); }

const Statement* statement_at(std::span<const Statement> statements, unsigned line) {
  const Statement* found = nullptr;
  for (const Statement& statement : statements) {
    if (line < statement.first_line || statement.last_line < line) continue;
    if (found != nullptr) return nullptr;
    found = &statement;
  }
  return found;
}

std::string_view line_of(std::string_view source, unsigned line) {
  std::size_t at = 0;
  for (unsigned n = 1; n < line; ++n) {
    at = source.find('\n', at);
    if (at == std::string_view::npos) return {};
    ++at;
  }
  return trim(source.substr(at, source.find('\n', at) - at));
}

bool follows_in_block(std::span<const Statement> statements, unsigned earlier_line,
                      unsigned later_line) {
  const Statement* earlier = statement_at(statements, earlier_line);
  const Statement* later = statement_at(statements, later_line);
  if (earlier == nullptr || later == nullptr || later <= earlier || later->indent > earlier->indent)
    return false;
  return std::all_of(earlier, later, [&](const Statement& s) { return s.indent >= later->indent; });
}

std::vector<Assignment> assignments_of(std::span<const Statement> statements,
                                       std::string_view variable) {
  std::vector<Assignment> out;
  for (const Statement& statement : statements)
    if (const auto value = assigned(statement.tokens, variable))
      out.push_back(
          {.line = statement.first_line, .scope = statement.scope, .value = value->literal});
  return out;
}

}  // namespace corral::rules

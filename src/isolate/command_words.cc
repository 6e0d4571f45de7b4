// SPDX-License-Identifier: Apache-2.0
#include "isolate/command_words.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "base/text.h"

namespace corral::isolate {
namespace {

constexpr int kMaxDepth = 8;  // sudo env sh -c "…": of commands in commands

// A program whose operands are another command.
struct Wrapper {
  std::string_view name;
  std::string_view value_letters;  // of its short options, those that take a value
  std::string_view value_names;    // of its long options, likewise, with blanks around each
  int operands = 0;                // of its own, before the command
  bool settings = false;           // NAME=VALUE may stand before the command
};

// From the manual page of each; sudo 1.9, coreutils 9.4, util-linux 2.40, numactl 2.0.
constexpr Wrapper kWrappers[] = {
    {"env", "uC", " unset chdir ", 0, true},
    {"sudo", "ugpCDhRrtTU",
     " user group prompt close-from chdir host chroot role type command-timeout other-user ", 0,
     true},
    {"doas", "uC", ""},
    {"nice", "n", " adjustment "},
    {"ionice", "cn", " class classdata "},
    {"nohup", "", ""},
    {"setsid", "", ""},
    {"timeout", "ks", " kill-after signal ", 1},
    {"time", "fo", " format output "},
    {"stdbuf", "ioe", " input output error "},
    {"taskset", "", "", 1},
    {"chrt", "TPD", " sched-runtime sched-period sched-deadline ", 1},
    {"numactl", "iwmNCpPl",
     " interleave weighted-interleave membind cpunodebind physcpubind preferred preferred-many "},
    {"setpriv", "",
     " reuid regid ruid euid rgid egid groups inh-caps ambient-caps bounding-set securebits "
     "pdeathsig selinux-label apparmor-profile "},
    {"prlimit", "", ""},
    {"unshare", "SGRw", " setuid setgid root wd map-user map-group "},
    {"chroot", "", "", 1},
    {"flock", "wE", " timeout conflict-exit-code ", 1},
    {"xargs", "adEIdLnPs", " arg-file delimiter replace max-lines max-args max-procs max-chars "},
    {"strace", "abeEIoOpPsSuUX", ""},
    {"unbuffer", "", ""},
    {"gosu", "", "", 1},
    {"runuser", "ugGsw", " user group supp-group shell whitelist-environment "},
    {"dbus-run-session", "", " config-file dbus-daemon "},
    {"exec", "a", ""},
    {"command", "", ""},
    {"builtin", "", ""},
};

constexpr std::string_view kShells[] = {"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh"};

// What may stand before a command in a shell's text and is none.
constexpr std::string_view kKeywords[] = {"!",    "{",     "}",     "if", "then",  "else",
                                          "elif", "while", "until", "do", "coproc"};

bool contains(const auto& range, std::string_view word) {
  return std::ranges::find(range, word) != std::ranges::end(range);
}

// NAME=VALUE.
bool is_setting(std::string_view word) {
  const auto equals = word.find('=');
  if (equals == word.npos || equals == 0) return false;
  const std::string_view name = word.substr(0, equals);
  return std::ranges::all_of(name,
                             [](char c) {
                               return c == '_' || (c >= 'a' && c <= 'z') ||
                                      (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
                             }) &&
         !(name[0] >= '0' && name[0] <= '9');
}

using Rest = std::span<const std::string>;

bool takes_value(const Wrapper& wrapper, std::string_view word) {
  if (word.starts_with("--")) {
    if (word.find('=') != word.npos) return false;
    return wrapper.value_names.find(" " + std::string(word.substr(2)) + " ") != word.npos;
  }
  const auto letter = word.find_first_of(wrapper.value_letters, 1);
  return letter != word.npos && letter + 1 == word.size();  // -n 5, not -n5
}

bool is_option(std::string_view word) { return word.size() > 1 && word.front() == '-'; }

// What follows the wrapper's own words.
Rest behind(const Wrapper& wrapper, Rest words) {
  while (!words.empty() && is_option(words.front())) {
    const std::string_view word = words.front();
    words = words.subspan(1);
    if (word == "--") break;
    if (takes_value(wrapper, word) && !words.empty()) words = words.subspan(1);
  }
  for (int i = 0; i < wrapper.operands && !words.empty(); ++i) words = words.subspan(1);
  while (wrapper.settings && !words.empty() && is_setting(words.front())) words = words.subspan(1);
  return words;
}

// The text of -c in `bash -lc TEXT`; nullptr: none.
const std::string* shell_text(Rest words) {
  bool wanted = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (!is_option(word) && !(word.size() > 1 && word.front() == '+'))
      return wanted ? &words[i] : nullptr;
    if (word == "--" || word == "-")
      return wanted && i + 1 < words.size() ? &words[i + 1] : nullptr;
    if (word == "--rcfile" || word == "--init-file") ++i;
    if (word.starts_with("--")) continue;
    wanted = wanted || word.find('c', 1) != word.npos;
    if (word.back() == 'o' || word.back() == 'O') ++i;
  }
  return nullptr;
}

// `env -S "TEXT"` splits TEXT into words, much as a shell does.
const std::string* split_string(Rest words) {
  for (std::size_t i = 0; i + 1 < words.size() && is_option(words[i]); ++i)
    if (words[i] == "-S" || words[i] == "--split-string") return &words[i + 1];
  return nullptr;
}

void collect(Rest words, int depth, std::vector<Words>& out);

void collect_text(std::string_view text, int depth, std::vector<Words>& out) {
  for (const Words& command : shell_commands(text)) collect(command, depth + 1, out);
}

// su [options] [-] [user [args]] with -c among them.
const std::string* su_text(Rest words) {
  for (std::size_t i = 0; i + 1 < words.size(); ++i)
    if (words[i] == "-c" || words[i] == "--command") return &words[i + 1];
  return nullptr;
}

void collect(Rest words, int depth, std::vector<Words>& out) {
  while (!words.empty() && (is_setting(words.front()) || contains(kKeywords, words.front())))
    words = words.subspan(1);
  if (words.empty()) return;
  const std::string_view name = base_name(words.front());
  const Rest rest = words.subspan(1);
  if (depth < kMaxDepth) {
    if (contains(kShells, name)) {
      if (const std::string* text = shell_text(rest)) return collect_text(*text, depth, out);
    }
    if (name == "su" || name == "runuser") {
      if (const std::string* text = su_text(rest)) return collect_text(*text, depth, out);
    }
    if (name == "env") {
      if (const std::string* text = split_string(rest)) return collect_text(*text, depth, out);
    }
    const auto wrapper = std::ranges::find(kWrappers, name, &Wrapper::name);
    if (wrapper != std::end(kWrappers)) {
      const Rest inner = behind(*wrapper, rest);
      if (!inner.empty()) return collect(inner, depth + 1, out);
    }
    if (name == "corral") {
      const auto dashes = std::ranges::find(rest, "--");
      if (dashes != rest.end()) return collect(Rest(std::next(dashes), rest.end()), depth + 1, out);
    }
  }
  out.emplace_back(words.begin(), words.end());
}

// Splits a shell's text. Every character is looked at once; nothing is kept of where it stood.
class ShellReader {
 public:
  explicit ShellReader(std::string_view text) : text_(text) {}

  std::vector<Words> read() {
    while (at_ < text_.size() && !stopped_) step();
    end_command();
    return std::move(commands_);
  }

 private:
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  void end_word() {
    if (in_word_ && !skip_target_) words_.push_back(std::move(word_));
    if (in_word_) skip_target_ = false;
    word_.clear();
    in_word_ = false;
  }

  void end_command() {
    end_word();
    if (!words_.empty()) commands_.push_back(std::move(words_));
    words_.clear();
  }

  void add(char c) {
    word_ += c;
    in_word_ = true;
  }

  void single_quotes() {
    in_word_ = true;
    for (++at_; at_ < text_.size() && text_[at_] != '\''; ++at_) word_ += text_[at_];
    ++at_;
  }

  void double_quotes() {
    in_word_ = true;
    for (++at_; at_ < text_.size() && text_[at_] != '"';) {
      if (peek() == '$' && peek(1) == '(') {
        substitution();
        continue;
      }
      const std::string_view kEscaped = "$`\"\\";
      if (text_[at_] == '\\' && at_ + 1 < text_.size() &&
          kEscaped.find(text_[at_ + 1]) != kEscaped.npos)
        ++at_;
      word_ += text_[at_++];
    }
    ++at_;
  }

  // $( … ): its commands run as well; of the word nothing more is known than that it is there.
  void substitution() {
    const std::size_t begin = at_ + 2;
    int depth = 0;
    std::size_t end = at_ + 1;
    for (; end < text_.size(); ++end) {
      if (text_[end] == '(') ++depth;
      if (text_[end] == ')' && --depth == 0) break;
    }
    if (begin < end && end < text_.size() && nesting_ < kMaxDepth) {
      ShellReader inner(text_.substr(begin, end - begin));
      inner.nesting_ = nesting_ + 1;
      for (Words& command : inner.read()) commands_.push_back(std::move(command));
    }
    word_ += "$()";
    in_word_ = true;
    at_ = std::min(end + 1, text_.size());
  }

  // >file, 2>&1, <<EOF: no words of the command.
  void redirection() {
    const bool digits = !word_.empty() && word_.find_first_not_of("0123456789") == word_.npos;
    if (digits) {
      word_.clear();
      in_word_ = false;
    }
    end_word();
    if (peek() == '<' && peek(1) == '<' && peek(2) != '<') {
      stopped_ = true;
      return;
    }
    while (peek() == '<' || peek() == '>' || peek() == '&' || peek() == '|') ++at_;
    skip_target_ = true;
  }

  void step() {
    const char c = peek();
    const bool blank = c == ' ' || c == '\t' || c == '\r';
    if (blank || c == '\n' || c == ';' || c == '|' || c == '(' || c == ')' || c == '`' ||
        (c == '&' && peek(1) != '>')) {
      end_word();
      if (!blank) {
        end_command();
        skip_target_ = false;
      }
      ++at_;
    } else if (c == '<' || c == '>' || c == '&') {
      if (c == '&') ++at_;
      redirection();
    } else if (c == '\'') {
      single_quotes();
    } else if (c == '"') {
      double_quotes();
    } else if (c == '\\') {
      ++at_;
      if (peek() != '\n' && at_ < text_.size()) add(peek());
      if (at_ < text_.size()) ++at_;
    } else if (c == '$' && peek(1) == '(') {
      substitution();
    } else if (c == '#' && !in_word_) {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    } else {
      add(c);
      ++at_;
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  std::string word_;
  bool in_word_ = false;
  bool skip_target_ = false;
  bool stopped_ = false;
  Words words_;
  std::vector<Words> commands_;
};

}  // namespace

std::string_view base_name(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == path.npos ? path : path.substr(slash + 1);
}

std::vector<Words> shell_commands(std::string_view text) { return ShellReader(text).read(); }

std::vector<Words> commands_within(const Words& argv) {
  std::vector<Words> out;
  collect(argv, 0, out);
  return out;
}

}  // namespace corral::isolate

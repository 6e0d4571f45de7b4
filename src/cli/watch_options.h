// SPDX-License-Identifier: Apache-2.0
// The options that every command with a watched job has, and how their command lines are read.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/command.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}

namespace corral::cli {

enum class ColorWhen { automatic, always, never };

struct WatchOptions {
  bool strict = false;
  bool json = false;
  bool quiet = false;
  bool verbose = false;
  double grace_s = 2;
  double interval_s = 0.1;
  std::optional<int> status_fd;
  std::string report;  // empty: none
  ColorWhen color = ColorWhen::automatic;
  std::vector<std::string> job;
};

// The texts as the user gave them, before they are checked.
struct WatchTexts {
  std::string color = "auto";
  int status_fd = -1;
};

void add_watch_options(CLI::App& app, WatchOptions& options, WatchTexts& texts);

// Parses the options; the app's name ("corral run") and `example` (" --gpus 1") stand in the
// errors.
Result<void> parse_options(CLI::App& app, const Arguments& arguments, std::string_view example);

// Checks the texts; the error is a usage error (exit 64) and names the option and the value.
Result<void> take_watch_texts(const CLI::App& app, const WatchTexts& texts, WatchOptions& options);

// A variable that stands for an option and is set but empty is an error: in a batch script it is a
// value that went missing, not one that was never wanted.
Result<void> refuse_empty_variables(std::initializer_list<const char*> names);

// "usage: …", the description and the options with what they mean.
std::string options_help(const CLI::App& app);

// Whether the help was asked for among the options.
bool wants_help(const Arguments& arguments);

}  // namespace corral::cli

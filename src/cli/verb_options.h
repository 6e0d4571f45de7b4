// SPDX-License-Identifier: Apache-2.0
// Options of commands that have verbs: `corral power show`, `corral mps start`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/error.h"
#include "cli/command.h"

namespace corral::cli {

// Parses what stands after the verb. The error is a usage error.
Result<void> parse_verb_options(CLI::App& app, const Arguments& arguments, const char* hint);

// A line for each option, for the help.
std::string verb_options_text(const CLI::App& app);

}  // namespace corral::cli

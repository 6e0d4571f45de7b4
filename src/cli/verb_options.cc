// SPDX-License-Identifier: Apache-2.0
#include "cli/verb_options.h"

#include <fmt/format.h>

namespace corral::cli {

Result<void> parse_verb_options(CLI::App& app, const Arguments& arguments, const char* hint) {
  std::vector<std::string> reversed(arguments.options.rbegin(), arguments.options.rend() - 1);
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::ParseError& error) {  // CLI11 speaks in exceptions
    return fail(app.get_name() + ": " + std::string(error.what()), hint);
  }
  return {};
}

std::string verb_options_text(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option : app.get_options())
    if (option->get_name().find("help") == std::string::npos)
      text +=
          fmt::format("  {:<19} {}\n", option->get_name(false, true), option->get_description());
  return text;
}

}  // namespace corral::cli

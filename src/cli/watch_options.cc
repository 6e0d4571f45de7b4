// SPDX-License-Identifier: Apache-2.0
#include "cli/watch_options.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace corral::cli {
namespace {

constexpr double kMaxSeconds = 1e6;

}  // namespace

void add_watch_options(CLI::App& app, WatchOptions& options, WatchTexts& texts) {
  app.add_option("--grace", options.grace_s,
                 "seconds to wait for processes that the job leaves behind")
      ->check(CLI::Range(0.0, kMaxSeconds))
      ->envname("CORRAL_GRACE");
  app.add_option("-i,--interval", options.interval_s, "seconds between samples")
      ->check(CLI::Range(0.05, 3600.0));
  app.add_option("--status-fd", texts.status_fd,
                 "write JSON lines on start and end to this descriptor");
  app.add_option("--report", options.report,
                 "write the whole report as JSON to this file (- for stdout)");
  app.add_flag("--json", options.json, "the verdict on stderr as JSON");
  app.add_flag("--strict", options.strict, "exit 3 when the job succeeded and something strayed");
  app.add_flag("-q,--quiet", options.quiet, "no verdict");
  app.add_flag("-v,--verbose", options.verbose, "all findings and what was not checked");
  app.add_option("--color", texts.color, "auto | always | never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
}

Result<void> parse_options(CLI::App& app, const Arguments& arguments, std::string_view example) {
  std::vector<std::string> reversed(arguments.options.rbegin(), arguments.options.rend());
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::ParseError& error) {  // CLI11 speaks in exceptions
    std::string command = app.get_name();
    return fail(std::string(error.what()),
                arguments.has_job
                    ? fmt::format("corral help {} shows the options",
                                  command.substr(command.rfind(' ') + 1))
                    : fmt::format("put -- before the command: {}{} -- CMD…", command, example));
  }
  return {};
}

Result<void> refuse_empty_variables(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name); value != nullptr && *value == '\0')
      return fail(fmt::format("{} is set and empty", name), "unset it, or give it a value");
  return {};
}

Result<void> take_watch_texts(const CLI::App& app, const WatchTexts& texts, WatchOptions& options) {
  CORRAL_CHECK(refuse_empty_variables({"CORRAL_GRACE"}));
  for (const double seconds : {options.grace_s, options.interval_s})
    if (!std::isfinite(seconds))
      return fail(fmt::format("--grace, --interval: {} is not a number of seconds", seconds));
  options.color = texts.color == "always"  ? ColorWhen::always
                  : texts.color == "never" ? ColorWhen::never
                                           : ColorWhen::automatic;
  if (app.count("--status-fd") == 0) return {};
  const std::string use =
      fmt::format("{} --status-fd 3 … 3>status.json", std::string(app.get_name()));
  if (texts.status_fd <= STDERR_FILENO && texts.status_fd >= 0)
    return fail(fmt::format("--status-fd {}: that is the job's own stream", texts.status_fd),
                "use 3 or more: " + use);
  if (texts.status_fd < 0 || ::fcntl(texts.status_fd, F_GETFD) < 0)
    return fail(fmt::format("--status-fd {}: not an open descriptor", texts.status_fd),
                "open it in the shell: " + use);
  options.status_fd = texts.status_fd;
  return {};
}

std::string options_help(const CLI::App& app) {
  std::string text = fmt::format("usage: {} [options] -- CMD…\n\n{}\n\noptions:\n",
                                 std::string(app.get_name()), app.get_description());
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_name().find("help") != std::string::npos) continue;
    std::string description = option->get_description();
    for (std::size_t at = 0; (at = description.find('\n', at)) != std::string::npos; ++at)
      description.insert(at + 1, std::string(22, ' '));
    text += fmt::format("  {:<19} {}\n", option->get_name(false, true), description);
  }
  return text;
}

bool wants_help(const Arguments& arguments) {
  return std::ranges::any_of(arguments.options,
                             [](const std::string& o) { return o == "-h" || o == "--help"; });
}

}  // namespace corral::cli

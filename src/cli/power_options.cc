// SPDX-License-Identifier: Apache-2.0
#include "cli/power_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>

#include "base/text.h"
#include "cli/verb_options.h"

namespace corral::cli {
namespace {

constexpr const char* kHint = "corral help power shows the options";

void add_show(CLI::App& app, PowerOptions& options) {
  app.add_option("--gpu,--gpus", options.gpus, "which GPUs, as for corral run --gpus");
  app.add_flag("--json", options.json, "as JSON");
}

void add_cap(CLI::App& app, PowerOptions& options, double& watts) {
  app.add_option("--gpu,--gpus", options.gpus, "which GPUs, as for corral run --gpus")->required();
  app.add_option("--watts", watts, "the limit of each of them")->required();
  app.add_flag("--dry-run", options.dry_run, "check everything and print it, set nothing");
  app.add_flag("-q,--quiet", options.quiet, "with a command: say nothing when all goes well");
}

Result<unsigned> milliwatts(double watts) {
  constexpr double kMost = 1e6;
  if (!std::isfinite(watts) || watts <= 0 || watts > kMost)
    return fail(fmt::format("--watts {}: not a number of watts", watts), kHint);
  return static_cast<unsigned>(std::llround(watts * 1000));
}

}  // namespace

std::string power_help() {
  PowerOptions options;
  double watts = 0;
  CLI::App show("", "corral power show");
  add_show(show, options);
  CLI::App cap("", "corral power cap");
  add_cap(cap, options, watts);
  return "usage: corral power show [options]\n"
         "       corral power cap --gpu SEL --watts N [options] [-- CMD…]\n\n"
         "Show the power limits of GPUs, and set them: for a command, or for good.\n\n"
         "options of show:\n" +
         verb_options_text(show) + "\noptions of cap:\n" + verb_options_text(cap) +
         "\nWith CMD the limit holds while CMD runs, and is put back when it ends, also after a "
         "signal; after a\n"
         "kill -9 of Corral the next `corral power` puts it back. What somebody else set meanwhile "
         "is left alone.\n"
         "Without CMD it stays until it is set again or the driver is loaded anew. A limit is the "
         "card's, for every\n"
         "user of it, and needs root. What the card does not take is refused before anything is "
         "done.\n"
         "\nexamples:\n"
         "  corral power show\n"
         "      requested, enforced and default limit, the card's range and what it draws now.\n"
         "  corral power cap --gpu 1 --watts 300 -- python3 train.py\n"
         "      300 W for this job.\n"
         "  corral power cap --gpu 0-3 --watts 250\n"
         "      all four, or none; prints how to put them back.\n"
         "\nexit code: the command's own; 125 Corral could not set up (not root, out of range), "
         "126 "
         "not executable,\n"
         "127 not found, 64 usage.\n";
}

Result<PowerOptions> parse_power_options(const Arguments& arguments) {
  if (arguments.options.empty()) return fail("corral power: show or cap?", kHint);
  PowerOptions options;
  const std::string& verb = arguments.options.front();
  double watts = 0;
  if (verb == "show") {
    CLI::App app("", "corral power show");
    add_show(app, options);
    CORRAL_CHECK(parse_verb_options(app, arguments, kHint));
    if (arguments.has_job) return fail("corral power show: it runs no command", kHint);
    return options;
  }
  if (verb != "cap")
    return fail(fmt::format("corral power: '{}' is not show or cap", printable(verb)), kHint);
  options.verb = PowerOptions::Verb::cap;
  CLI::App app("", "corral power cap");
  add_cap(app, options, watts);
  CORRAL_CHECK(parse_verb_options(app, arguments, kHint));
  CORRAL_TRY(options.milliwatts, milliwatts(watts));
  options.job = arguments.job;
  if (arguments.has_job && options.job.empty())
    return fail("corral power cap: no command after --", "leave -- out: the limit then stays");
  return options;
}

}  // namespace corral::cli

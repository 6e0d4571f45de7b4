// SPDX-License-Identifier: Apache-2.0
#include "cli/mps_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/text.h"
#include "cli/verb_options.h"

namespace corral::cli {
namespace {

constexpr const char* kHint = "corral help mps shows the options";

struct Texts {
  std::string enforce = "auto";
};

void add_start(CLI::App& app, MpsOptions& options, Texts& texts) {
  app.add_option("--gpu,--gpus", options.gpus,
                 "which GPUs, as for corral run --gpus; a daemon for each")
      ->required();
  app.add_option("--enforce", texts.enforce,
                 "what keeps the daemon on its GPU, as for corral run --enforce");
  app.add_flag("--allow-unenforced", options.allow_unenforced,
               "start it where nothing can be enforced");
}

void add_status(CLI::App& app, MpsOptions& options) {
  app.add_option("--gpu,--gpus", options.gpus, "which GPUs");
  app.add_flag("--json", options.json, "as JSON");
}

void add_stop(CLI::App& app, MpsOptions& options) {
  app.add_option("--gpu,--gpus", options.gpus, "which GPUs")->required();
  app.add_flag("--force", options.force, "also with clients on it, which end with it");
}

}  // namespace

std::string mps_help() {
  MpsOptions options;
  Texts texts;
  CLI::App start("", "corral mps start");
  add_start(start, options, texts);
  CLI::App status("", "corral mps status");
  add_status(status, options);
  CLI::App stop("", "corral mps stop");
  add_stop(stop, options);
  return "usage: corral mps start --gpu SEL [options]\n"
         "       corral mps status [options]\n"
         "       corral mps stop --gpu SEL [--force]\n\n"
         "Share a GPU between processes through NVIDIA's MPS: one daemon for each GPU, confined to "
         "that GPU.\n\n"
         "options of start:\n" +
         verb_options_text(start) + "\noptions of status:\n" + verb_options_text(status) +
         "\noptions of stop:\n" + verb_options_text(stop) +
         "\nA job joins with corral run --gpus 1 --mps 30%: each of its processes gets at most 30 "
         "% "
         "of the GPU's\n"
         "multiprocessors; --mps 30%,8G limits its device memory too. Root's daemons serve every "
         "user, one user at\n"
         "a time; an ordinary user's serve that user. The limits are the clients' own word: they "
         "share fairly, they\n"
         "do not keep an enemy out. A fault of one client ends all on that GPU.\n"
         "\nexamples:\n"
         "  corral mps start --gpu 1\n"
         "  corral run --gpus 1 --mps 50% -- python3 serve.py\n"
         "  corral mps status\n"
         "  corral mps stop --gpu 1\n"
         "\nexit code: 0; 125 it could not be done, 64 usage.\n";
}

Result<MpsOptions> parse_mps_options(const Arguments& arguments) {
  if (arguments.options.empty()) return fail("corral mps: start, status or stop?", kHint);
  MpsOptions options;
  Texts texts;
  const std::string& verb = arguments.options.front();
  CLI::App app("", "corral mps " + verb);
  if (verb == "start") {
    options.verb = MpsOptions::Verb::start;
    add_start(app, options, texts);
  } else if (verb == "status") {
    options.verb = MpsOptions::Verb::status;
    add_status(app, options);
  } else if (verb == "stop") {
    options.verb = MpsOptions::Verb::stop;
    add_stop(app, options);
  } else {
    return fail(fmt::format("corral mps: '{}' is not start, status or stop", printable(verb)),
                kHint);
  }
  CORRAL_CHECK(parse_verb_options(app, arguments, kHint));
  CORRAL_TRY(options.methods, isolate::parse_methods(texts.enforce));
  if (arguments.has_job)
    return fail("corral mps " + verb + ": it runs no command",
                "corral run --gpus 1 --mps 30% -- CMD runs one");
  return options;
}

}  // namespace corral::cli

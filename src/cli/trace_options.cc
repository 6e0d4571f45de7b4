// SPDX-License-Identifier: Apache-2.0
#include "cli/trace_options.h"

#include <CLI/CLI.hpp>

namespace corral::cli {
namespace {

struct Texts : WatchTexts {
  std::string expect;
};

void add_options(CLI::App& app, TraceOptions& options, Texts& texts) {
  app.add_option(
         "--expect", texts.expect,
         "the GPUs that the job is meant to use, as for run --gpus: contexts elsewhere are\n"
         "strays; or rank: each process the GPU of its own LOCAL_RANK (SLURM_LOCALID,\n"
         "OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID)")
      ->envname("CORRAL_EXPECT");
  app.add_flag(
      "--deny", options.deny,
      "refuse contexts elsewhere inside the process (error 46) and say who asked; this is\n"
      "no enforcement: corral run is");
  add_watch_options(app, options, texts);
}

constexpr const char* kDescription =
    "Observe a command as it is: every context on every GPU, with the line that made it.\n"
    "Nothing is confined, and of the environment only LD_LIBRARY_PATH and CORRAL_… change.";

constexpr std::string_view kExamples =
    "\nexamples:\n"
    "  corral trace -- python3 train.py\n"
    "      who is on GPU 0? Every context with its process, call and line.\n"
    "  corral trace --expect 1 --strict -- pytest\n"
    "      in CI: exit 3 when the tests pass and one made a context on another GPU.\n"
    "  corral trace --expect rank -- torchrun --nproc-per-node 8 train.py\n"
    "      each rank is expected on its own GPU; a line on stderr as soon as one strays.\n"
    "  corral trace --expect 1 --deny -- python3 train.py\n"
    "      the stray call fails where it is made: the job's own traceback shows it.\n"
    "\nexit code: the job's own (128+N when signal N ended it); 125 Corral could not set up, 126 "
    "not executable,\n"
    "127 not found, 3 with --strict, 64 usage.\n";

}  // namespace

std::string trace_help() {
  CLI::App app(kDescription, "corral trace");
  TraceOptions options;
  Texts texts;
  add_options(app, options, texts);
  return options_help(app) + std::string(kExamples);
}

Result<TraceOptions> parse_trace_options(const Arguments& arguments) {
  CLI::App app(kDescription, "corral trace");
  TraceOptions options;
  Texts texts;
  add_options(app, options, texts);
  CORRAL_CHECK(parse_options(app, arguments, ""));
  CORRAL_CHECK(refuse_empty_variables({"CORRAL_EXPECT"}));
  CORRAL_CHECK(take_watch_texts(app, texts, options));
  if (app.count("--expect") > 0) options.expect = texts.expect;
  if (!options.expect && (options.deny || options.strict))
    return fail(
        std::string(options.deny ? "--deny" : "--strict") + ": without --expect nothing is a stray",
        "say what the job is meant to use: --expect 1, or --expect rank");
  options.job = arguments.job;
  if (options.job.empty())
    return fail("no command", "corral trace [options] -- CMD…: the command comes after --");
  return options;
}

}  // namespace corral::cli

// SPDX-License-Identifier: Apache-2.0
#include "cli/run_options.h"

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

// The texts as the user gave them, before they are checked.
struct Texts {
  std::string gpus;
  std::string enforce = "auto";
  std::string color = "auto";
  int status_fd = -1;
  bool no_observe = false;
};

void add_options(CLI::App& app, RunOptions& options, Texts& texts) {
  app.add_option(
         "--gpus", texts.gpus,
         "the job's GPUs: 1 | 0,2-3 | GPU-2b68 (UUID prefix) | 00:07.0 | MIG-… | all | none;\n"
         "without it nothing is refused, only watched")
      ->envname("CORRAL_GPUS");
  app.add_option("--enforce", texts.enforce,
                 "auto | cgroup | landlock | env; auto takes the best that is there")
      ->envname("CORRAL_ENFORCE");
  app.add_flag("--tight", options.tight, "every layer at once, for code that tries to get out");
  app.add_option("--refuse", options.refuse, "refuse this device node too (repeatable)");
  app.add_flag("--allow-unenforced", options.allow_unenforced,
               "go on with CUDA_VISIBLE_DEVICES alone where nothing can be enforced");
  app.add_flag("--dry-run", options.dry_run, "print the plan, start nothing");
  app.add_flag("--exec", options.exec, "confine and become the job: nothing watches, no verdict");
  app.add_flag("--no-observe", texts.no_observe, "do not put the observing library into the job");
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

Result<std::string> absolute(const std::string& path) {
  if (path.empty())
    return fail("--refuse: the path is empty", "name a device node: --refuse /dev/kvm");
  std::error_code error;
  const auto full = std::filesystem::absolute(path, error);
  if (error) return fail("--refuse " + path + ": " + error.message());
  return full.lexically_normal().string();
}

Result<void> take_texts(const CLI::App& app, const Texts& texts, RunOptions& options) {
  // An empty variable in a batch script is a selection that went missing, not one that was never
  // wanted.
  for (const char* name : {"CORRAL_GPUS", "CORRAL_ENFORCE", "CORRAL_GRACE"})
    if (const char* value = std::getenv(name); value != nullptr && *value == '\0')
      return fail(fmt::format("{} is set and empty", name), "unset it, or give it a value");
  for (const double seconds : {options.grace_s, options.interval_s})
    if (!std::isfinite(seconds))
      return fail(fmt::format("--grace, --interval: {} is not a number of seconds", seconds));
  if (app.count("--gpus") > 0) options.gpus = texts.gpus;
  CORRAL_TRY(options.method, isolate::parse_method(texts.enforce));
  options.observe = !texts.no_observe;
  options.color = texts.color == "always"  ? ColorWhen::always
                  : texts.color == "never" ? ColorWhen::never
                                           : ColorWhen::automatic;
  if (app.count("--status-fd") > 0) {
    if (texts.status_fd <= STDERR_FILENO && texts.status_fd >= 0)
      return fail(fmt::format("--status-fd {}: that is the job's own stream", texts.status_fd),
                  "use 3 or more: corral run --status-fd 3 … 3>status.json");
    if (texts.status_fd < 0 || ::fcntl(texts.status_fd, F_GETFD) < 0)
      return fail(fmt::format("--status-fd {}: not an open descriptor", texts.status_fd),
                  "open it in the shell: corral run --status-fd 3 … 3>status.json");
    options.status_fd = texts.status_fd;
  }
  for (std::string& path : options.refuse) {
    CORRAL_TRY(std::string full, absolute(path));
    path = std::move(full);
  }
  return {};
}

constexpr std::string_view kExamples =
    "\nexamples:\n"
    "  corral run --gpus 1 -- python3 train.py\n"
    "      GPU 1 alone. Inside the job it is cuda:0.\n"
    "  corral run --gpus 0,2-3 -- torchrun --nproc-per-node 3 train.py\n"
    "      one confinement around all ranks: peer access and NCCL work.\n"
    "  corral run --gpus 1 --tight --strict --report run.json -- ./unknown-binary\n"
    "      every layer; exit 3 if it strayed; everything seen in run.json.\n"
    "  corral run --gpus none --refuse /dev/kvm -- make check\n"
    "      no GPU, and no /dev/kvm either; works on a machine without a GPU.\n"
    "  corral run --gpus 1 --dry-run -- true\n"
    "      which layer would hold, which nodes it would refuse.\n"
    "\nexit code: the job's own (128+N when signal N ended it); 125 Corral could not set up, 126 "
    "not executable,\n"
    "127 not found, 3 with --strict, 64 usage.\n";

}  // namespace

bool wants_help(const Arguments& arguments) {
  return std::ranges::any_of(arguments.options,
                             [](const std::string& o) { return o == "-h" || o == "--help"; });
}

std::string run_help() {
  CLI::App app("Confine a command to its GPUs, watch it, and say what it touched.", "corral run");
  RunOptions options;
  Texts texts;
  add_options(app, options, texts);
  std::string text =
      "usage: corral run [options] -- CMD…\n\n" + app.get_description() + "\n\noptions:\n";
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_name().find("help") != std::string::npos) continue;
    std::string description = option->get_description();
    for (std::size_t at = 0; (at = description.find('\n', at)) != std::string::npos; ++at)
      description.insert(at + 1, std::string(22, ' '));
    text += fmt::format("  {:<19} {}\n", option->get_name(false, true), description);
  }
  return text + std::string(kExamples);
}

Result<RunOptions> parse_run_options(const Arguments& arguments) {
  CLI::App app("", "corral run");
  RunOptions options;
  Texts texts;
  add_options(app, options, texts);
  std::vector<std::string> reversed(arguments.options.rbegin(), arguments.options.rend());
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::ParseError& error) {  // CLI11 speaks in exceptions
    return fail(std::string(error.what()),
                arguments.has_job ? "corral help run shows the options"
                                  : "put -- before the command: corral run --gpus 1 -- CMD…");
  }
  CORRAL_CHECK(take_texts(app, texts, options));
  if (options.exec && (options.strict || options.json || !options.report.empty()))
    return fail(
        "--exec: nothing watches the job, so there is no verdict for --strict, --json or --report",
        "leave --exec out, or these");
  options.job = arguments.job;
  if (options.job.empty() && !options.dry_run)
    return fail("no command", "corral run [options] -- CMD…: the command comes after --");
  return options;
}

}  // namespace corral::cli

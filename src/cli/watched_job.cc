// SPDX-License-Identifier: Apache-2.0
#include "cli/watched_job.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/live_strays.h"
#include "cli/print.h"
#include "cli/run_facts.h"
#include "launch/descriptors.h"
#include "launch/watch.h"
#include "report/run_json.h"
#include "report/run_text.h"
#include "rules/engine.h"
#include "sample/sampler.h"
#include "snapshot/from_trace.h"
#include "snapshot/sources.h"
#include "snapshot/symbols.h"
#include "trace/reader.h"

namespace corral::cli {
namespace {

// A job that ends by then has not used a GPU, and does not pay for NVML's start and end.
constexpr std::chrono::milliseconds kNvmlDelay{10};

Result<void> write_report(const Fd& file, const std::string& path, std::string_view json) {
  struct stat found{};
  if (::fstat(file.get(), &found) == 0 && S_ISREG(found.st_mode) && ::ftruncate(file.get(), 0) != 0)
    return fail_sys("--report: empty " + path, errno);
  if (auto written = write_all(file.get(), json); !written)
    return fail_sys("--report: write " + path, written.error().sys);
  return {};
}

void add_traces(const Observation& observation, std::int64_t start_ns,
                const std::vector<launch::SeenProcess>& seen, snapshot::Run& run) {
  std::vector<trace::ProcessTrace> traces;
  bool complete = true;
  if (!observation.why_not.empty()) run.notes.push_back(observation.why_not);
  if (observation.folder) {
    auto found = trace::read_trace_folder(observation.folder->trace_folder());
    if (found) {
      traces = std::move(found->traces);
      for (const Error& error : found->errors) run.notes.push_back(error.what);
      complete = found->errors.empty();
    } else {
      run.notes.push_back(found.error().what);
      complete = false;
    }
    snapshot::add_traces(traces, start_ns, run);
    complete =
        complete && run.coverage.records_lost == 0 &&
        std::ranges::none_of(traces, [](const auto& t) { return t.damage.has_value() || t.cut; });
    // What could not be read may have held a context: none seen is then not none.
    for (snapshot::GpuRun& gpu : run.gpus)
      if (!complete && gpu.contexts == 0U) gpu.contexts.reset();
  }
  add_processes(seen, traces, run);
}

void report(const WatchOptions& options, const Fd& file, const snapshot::Run& run,
            const rules::Verdict& verdict) {
  const std::string json =
      options.json || !options.report.empty() ? report::run_json(run, verdict) : "";
  if (options.report == "-") {
    if (auto written = write_all(STDOUT_FILENO, json); !written)
      complain(fail_sys("--report -: write to stdout", written.error().sys).error(), 0);
  } else if (file) {
    if (auto written = write_report(file, options.report, json); !written)
      complain(written.error(), 0);
  }
  if (options.quiet) return;
  const bool color = options.color == ColorWhen::always ||
                     (options.color == ColorWhen::automatic && ::isatty(STDERR_FILENO) == 1 &&
                      std::getenv("NO_COLOR") == nullptr);
  const std::string text =
      options.json ? json
                   : report::run_text(run, verdict, {.color = color, .verbose = options.verbose});
  (void)write_all(STDERR_FILENO, text);
}

int exit_code(const WatchOptions& options, const snapshot::Run& run,
              const rules::Verdict& verdict) {
  const int code =
      run.exit.code ? *run.exit.code : launch::kSignalBase + run.exit.signal.value_or(0);
  return options.strict && code == 0 && rules::stray_count(verdict) > 0 ? launch::kStrayed : code;
}

}  // namespace

int complain(const Error& error, int code) {
  print_error("corral: {}\n", printable(error.what));
  if (!error.hint.empty()) print_error("  {}\n", printable(error.hint));
  return code;
}

int complain(const launch::StartError& error, const Status& status) {
  status.failed(error);
  return complain(error.error, error.exit_code);
}

launch::StartError cannot_set_up(Error error) { return {std::move(error), launch::kCannotSetUp}; }

Result<Fd> open_report(const std::string& path) {
  if (path.empty() || path == "-") return Fd();
  // Without a reader a FIFO is an error, not a wait.
  auto file = open_file(path, O_WRONLY | O_CREAT | O_NONBLOCK, 0644);
  if (!file)
    return fail("--report: " + file.error().what,
                file.error().sys == ENXIO
                    ? "start its reader first"
                    : "name a file in a folder that exists and can be written to");
  ::fcntl(file->get(), F_SETFL, O_WRONLY);
  return file;
}

int watch_job(const WatchOptions& options, JobSetup& setup, const std::vector<int>& inherited,
              const Status& status) {
  auto signals = launch::SignalDesk::open();
  if (!signals) return complain(cannot_set_up(signals.error()), status);
  auto canary = launch::Canary::start();
  if (!canary) return complain(cannot_set_up(canary.error()), status);

  snapshot::Run& run = setup.run;
  sample::Options sampling;
  sampling.fast_interval =
      std::chrono::nanoseconds(static_cast<std::int64_t>(options.interval_s * 1e9));
  sampling.job_ancestor = ::getpid();
  sampling.not_of_job = signals->earlier_processes();
  sample::Sampler sampler(setup.machine.nvml, setup.machine.inventory, sampling);
  if (setup.machine.nvml_open) sampler.before();
  launch::close_on_exec_except(inherited);

  run.started_realtime_ns = realtime_ns();
  const std::int64_t start_ns = monotonic_ns();
  const auto job =
      launch::start_job({.command = options.job,
                         .environment = setup.environment,
                         .confinement = setup.confinement ? &*setup.confinement : nullptr},
                        *signals);
  if (!job) return complain(job.error(), status);
  sampler.start(kNvmlDelay);
  status.started(*job, run.confinement.enforced);

  const auto& folder = setup.observation.folder;
  launch::JobWatch watch(folder ? folder->library_folder() : "",
                         folder ? folder->trace_folder() : "", setup.observation.driver);
  std::optional<LiveStrays> live;
  if (folder && run.expectation.kind != snapshot::Expectation::Kind::none && !options.quiet &&
      !options.json)
    live.emplace(folder->trace_folder(), run, start_ns);
  const launch::JobEnd end = launch::supervise(*job, *signals, *canary, options.grace_s, [&] {
    watch.look(launch::job_processes(*signals, canary->pid()));
    if (live) (void)write_all(STDERR_FILENO, live->look());
  });

  add_end(end, start_ns, monotonic_ns() - static_cast<std::int64_t>(end.grace_used_s * 1e9), run);
  add_samples(sampler.stop(start_ns), run);
  add_traces(setup.observation, start_ns, watch.seen(), run);
  snapshot::name_functions(run);
  snapshot::add_sources(run);
  add_orphans(end.orphans, run);
  if (!end.orphans.empty() && setup.observation.folder) setup.observation.folder->keep();
  if (setup.confinement) {
    for (std::string& event : isolate::limit_events(*setup.confinement))
      run.notes.push_back(std::move(event));
    (void)isolate::release(*setup.confinement);
  }

  const rules::Verdict verdict = rules::judge(run);
  status.ended(run.exit, rules::stray_count(verdict));
  report(options, setup.report, run, verdict);
  return exit_code(options, run, verdict);
}

}  // namespace corral::cli

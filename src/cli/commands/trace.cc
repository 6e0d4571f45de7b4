// SPDX-License-Identifier: Apache-2.0
// corral trace: observe a command without confining it, and say who made which context.
#include <algorithm>

#include "cli/command.h"
#include "cli/deny_policy.h"
#include "cli/print.h"
#include "cli/run_facts.h"
#include "cli/trace_options.h"
#include "cli/watched_job.h"
#include "gpu/selector.h"
#include "launch/descriptors.h"

extern char** environ;

namespace corral::cli {
namespace {

using snapshot::Expectation;

Result<void> take_expectation(const TraceOptions& options, const gpu::Inventory& inventory,
                              snapshot::Run& run) {
  run.traced = true;
  if (!options.expect) return {};
  run.expectation = {
      .kind = Expectation::Kind::rank, .text = *options.expect, .denied = options.deny};
  if (*options.expect == "rank") return {};
  run.expectation.kind = Expectation::Kind::gpus;
  auto expected = gpu::select(*options.expect, inventory);
  if (!expected)
    return fail("--expect: " + expected.error().what, expected.error().hint, expected.error().sys);
  for (snapshot::GpuRun& gpu : run.gpus)
    gpu.allowed = std::ranges::find(expected->gpus, gpu.gpu.index) != expected->gpus.end();
  return {};
}

Result<JobSetup> prepare(const TraceOptions& options) {
  JobSetup setup{.machine = gpu::open_machine(),
                 .environment = launch::Environment(environ),
                 .observation = {},
                 .confinement = {},
                 .report = {},
                 .run = {}};
  setup.run = planned_run(setup.machine.inventory, {}, {}, options.job);
  CORRAL_CHECK(take_expectation(options, setup.machine.inventory, setup.run));
  CORRAL_TRY(setup.report, open_report(options.report));
  setup.observation = observe(true, setup.environment);
  // A gate that sees nothing would let everything pass.
  if ((options.deny || options.strict) && !setup.observation.why_not.empty())
    return fail(setup.observation.why_not,
                "--deny and --strict need it: nothing would be refused or found");
  if (options.deny) setup.environment.set(kDenyVariable, deny_policy(setup.run));
  return setup;
}

int run(const Arguments& arguments) {
  const std::vector<int> inherited = launch::open_descriptors();
  if (wants_help(arguments)) {
    print_out("{}", trace_help());
    return 0;
  }
  const auto options = parse_trace_options(arguments);
  if (!options) return complain(options.error(), launch::kUsage);
  const Status status(options->status_fd);
  auto setup = prepare(*options);
  if (!setup) return complain(cannot_set_up(setup.error()), status);
  return watch_job(*options, *setup, inherited, status);
}

const Registered<Command> command{
    Command{.name = "trace",
            .summary = "confine nothing: show every context and the line that made it",
            .run = run,
            .help = trace_help}};

}  // namespace
}  // namespace corral::cli

// SPDX-License-Identifier: Apache-2.0
// corral run: confine a command to its GPUs, watch it, and say what it touched.
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/command.h"
#include "cli/mps_share.h"
#include "cli/print.h"
#include "cli/run_facts.h"
#include "cli/run_options.h"
#include "cli/watched_job.h"
#include "gpu/selector.h"
#include "isolate/by_hand.h"
#include "isolate/plan.h"
#include "launch/descriptors.h"

extern char** environ;

namespace corral::cli {
namespace {

Result<isolate::Selection> select(const RunOptions& options, const gpu::Inventory& inventory) {
  isolate::Selection out;
  if (!options.gpus) return out;
  CORRAL_TRY(static_cast<gpu::Selection&>(out), gpu::select(*options.gpus, inventory));
  out.requested = true;
  return out;
}

struct Planned {
  gpu::OpenedMachine machine;
  isolate::Selection allowed;
  std::optional<JoinedMps> mps;
  isolate::Plan plan;
};

bool joins_unconfined(const Planned& planned) {
  return planned.mps && planned.mps->share.daemon_enforced == "none";
}

// Of a daemon that cannot work elsewhere than where the job may.
std::string own_mps_pipe(const Planned& planned) {
  if (!planned.mps) return confined_pipe_of_caller(planned.machine.inventory, planned.allowed);
  return joins_unconfined(planned) ? "" : planned.mps->pipe_folder;
}

// Settings of the plan, so that --dry-run shows them.
void add_settings(const RunOptions& options, Planned& planned) {
  isolate::Plan& plan = planned.plan;
  if (planned.mps) {
    plan.environment.insert(plan.environment.end(), planned.mps->settings.begin(),
                            planned.mps->settings.end());
    plan.notes.insert(plan.notes.end(), planned.mps->notes.begin(), planned.mps->notes.end());
  }
  if (options.quiet_idle) plan.environment.push_back({"CUDA_DISABLE_PERF_BOOST", "1"});
  launch::AllocatorSettings allocators = options.allocators;
  const auto notes = launch::settle_with(launch::Environment(environ), allocators);
  plan.environment.insert(plan.environment.end(), allocators.variables.begin(),
                          allocators.variables.end());
  plan.notes.insert(plan.notes.end(), notes.begin(), notes.end());
  // Of no interest to a job that has run.
  if (options.dry_run)
    plan.notes.insert(plan.notes.end(), allocators.remarks.begin(), allocators.remarks.end());
}

Result<Planned> plan_run(const RunOptions& options) {
  Planned planned;
  planned.machine = gpu::open_machine();
  CORRAL_TRY(planned.allowed, select(options, planned.machine.inventory));
  if (options.mps) {
    CORRAL_TRY(planned.mps, join_mps(*options.mps, planned.machine, planned.allowed));
  }
  CORRAL_TRY(
      planned.plan,
      isolate::plan_for({.methods = options.methods,
                         .tight = options.tight,
                         .allow_unenforced = options.allow_unenforced,
                         .refuse_paths = options.refuse,
                         .inventory = planned.machine.inventory,
                         .allowed = planned.allowed,
                         .command = options.job,
                         .limits = options.limits,
                         .hardware = planned.machine.machine.hardware,
                         .own_mps_pipe = own_mps_pipe(planned),
                         .open_mps_pipe = joins_unconfined(planned) ? planned.mps->pipe_folder : "",
                         .by_hand = options.print_commands}));
  add_settings(options, planned);
  return planned;
}

Result<JobSetup> prepare(const RunOptions& options, Planned planned) {
  JobSetup setup{.machine = std::move(planned.machine),
                 .environment = launch::Environment(environ),
                 .observation = {},
                 .confinement = {},
                 .report = {},
                 .run = {}};
  if (!options.exec) {
    CORRAL_TRY(setup.report, open_report(options.report));
  }
  for (const isolate::Setting& setting : planned.plan.environment)
    setup.environment.set(setting.name, setting.value);
  // The run folder before the rule set: Landlock grants what is there when the rules are made.
  setup.observation = observe(options.observe && !options.exec, setup.environment);
  CORRAL_TRY(setup.confinement, isolate::prepare(planned.plan));
  // With the prepared plan: cgroup v1 may have taken the place of v2.
  setup.run =
      planned_run(setup.machine.inventory, setup.confinement->plan, planned.allowed, options.job);
  if (planned.mps) setup.run.mps = planned.mps->share;
  return setup;
}

int dry_run(const RunOptions& options, const Planned& planned) {
  if (options.json)
    print_out("{}\n", isolate::to_json(planned.plan)
                          .dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
  else
    print_out("{}{}", planned.machine.inventory.simulated ? "SIMULATED machine\n" : "",
              isolate::describe(planned.plan));
  return 0;
}

// Before the start: what leaves the confinement may run for days.
void say_advice(const isolate::Plan& plan) {
  for (const isolate::Advice& advice : plan.advice) {
    print_error("corral: warning: {}\n", printable(advice.what));
    if (!advice.instead.empty()) print_error("corral: instead: {}\n", printable(advice.instead));
  }
}

int become_job(const RunOptions& options, const JobSetup& setup, const std::vector<int>& inherited,
               const Status& status) {
  const isolate::Plan& plan = setup.confinement->plan;
  if (!options.quiet && plan.requested)
    print_error("corral: confined by {}; not watched (--exec)\n",
                plan.layers.empty() ? plan.enforced : join(isolate::layer_texts(plan), " + "));
  if (!options.quiet)
    for (const isolate::Limit& limit : plan.limits)
      print_error("corral: limit: {}\n", printable(isolate::limit_text(limit)));
  launch::close_on_exec_except(inherited);
  status.started(::getpid(), plan.enforced);
  return complain(launch::exec_in_place({.command = options.job,
                                         .environment = setup.environment,
                                         .confinement = &*setup.confinement}),
                  status);
}

int run(const Arguments& arguments) {
  const std::vector<int> inherited = launch::open_descriptors();
  if (wants_help(arguments)) {
    print_out("{}", run_help());
    return 0;
  }
  const auto options = parse_run_options(arguments);
  if (!options) return complain(options.error(), launch::kUsage);
  const Status status(options->status_fd);
  auto planned = plan_run(*options);
  if (!planned) return complain(cannot_set_up(planned.error()), status);
  if (options->print_commands) {
    print_out("{}", isolate::commands_by_hand(planned->plan, options->job));
    return 0;
  }
  if (options->dry_run) return dry_run(*options, *planned);
  auto setup = prepare(*options, *std::move(planned));
  if (!setup) return complain(cannot_set_up(setup.error()), status);
  if (!options->quiet) say_advice(setup->confinement->plan);
  return options->exec ? become_job(*options, *setup, inherited, status)
                       : watch_job(*options, *setup, inherited, status);
}

const Registered<Command> command{
    Command{.name = "run",
            .summary = "confine a command to its GPUs, watch it, say what it touched",
            .run = run,
            .help = run_help}};

}  // namespace
}  // namespace corral::cli

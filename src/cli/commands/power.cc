// SPDX-License-Identifier: Apache-2.0
// corral power: show the power limits of GPUs, and cap them for a command or for good.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/signals.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/power_options.h"
#include "cli/print.h"
#include "cli/watch_options.h"
#include "cli/watched_job.h"
#include "gpu/machine.h"
#include "gpu/selector.h"
#include "launch/descriptors.h"
#include "launch/job.h"
#include "power/cap.h"
#include "power/limits.h"
#include "power/recovery.h"

extern char** environ;

namespace corral::cli {
namespace {

// Everything that both verbs start from.
struct Power {
  gpu::Inventory inventory;
  std::shared_ptr<const gpu::Nvml> nvml;
  gpu::Selection selection;
  std::string folder;  // of the journals
  power::Holder self;
  std::vector<power::JournalEntry> held;  // caps of living processes

  std::string prefix() const { return inventory.simulated ? "corral (SIMULATED): " : "corral: "; }
  void say(std::string_view text) const { print_error("{}{}\n", prefix(), printable(text)); }
};

Result<Power> open_power(const PowerOptions& options) {
  Power out;
  gpu::OpenedMachine machine = gpu::open_machine();
  out.inventory = std::move(machine.inventory);
  CORRAL_TRY(out.selection, gpu::select(options.gpus, out.inventory));
  if (!machine.nvml)
    return fail("power limits are read through NVML: " + join(out.inventory.notes, "; "));
  {
    const SignalsBlocked blocked;  // also in threads that it starts
    CORRAL_TRY(out.nvml, machine.nvml());
  }
  CORRAL_TRY(out.folder, power::journal_folder(machine.machine, ::geteuid(),
                                               std::getenv("XDG_STATE_HOME"), std::getenv("HOME")));
  CORRAL_TRY(out.self, power::this_process());
  power::Recovery recovery =
      power::recover(*out.nvml, out.inventory, out.folder, out.self.boot_id, !options.dry_run);
  for (const std::string& line : recovery.said) out.say(line);
  out.held = std::move(recovery.held);
  return out;
}

struct Row {
  const gpu::Gpu* gpu = nullptr;
  power::Limits limits;
  const power::JournalEntry* held = nullptr;
};

std::vector<Row> read_rows(const Power& power) {
  std::vector<Row> rows;
  for (const unsigned index : power.selection.gpus) {
    Row row{.gpu = &power.inventory.gpus[index], .limits = {}, .held = nullptr};
    if (const auto card = power::find_card(*power.nvml, *row.gpu))
      row.limits = power::read_limits(*power.nvml, card->device);
    else
      row.limits.unknown.push_back(card.error().what);
    const auto held = std::ranges::find(power.held, row.gpu->uuid, &power::JournalEntry::gpu);
    if (held != power.held.end()) row.held = &*held;
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string watts_text(std::optional<double> watts) {
  return watts ? fmt::format("{:.1f}", *watts) : "-";
}

std::optional<double> in_watts(std::optional<unsigned> milliwatts) {
  if (!milliwatts) return std::nullopt;
  return *milliwatts / 1000.0;
}

void print_table(const Power& power, const std::vector<Row>& rows) {
  std::string text = power.inventory.simulated ? "SIMULATED machine\n" : "";
  text += fmt::format("{:<4}{:>10}{:>10}{:>10}{:>8}{:>8}{:>8}  {}\n", "GPU", "requested",
                      "enforced", "default", "min", "max", "draw", "W each");
  for (const Row& row : rows) {
    const power::Limits& l = row.limits;
    text += fmt::format("{:<4}{:>10}{:>10}{:>10}{:>8}{:>8}{:>8}  {} {} {}\n", row.gpu->index,
                        watts_text(in_watts(l.requested_mw)), watts_text(in_watts(l.enforced_mw)),
                        watts_text(in_watts(l.default_mw)), watts_text(in_watts(l.min_mw)),
                        watts_text(in_watts(l.max_mw)), watts_text(l.draw_w),
                        printable(row.gpu->name), row.gpu->pci.text(), row.gpu->uuid);
  }
  for (const Row& row : rows) {
    if (row.held != nullptr)
      text += fmt::format("GPU {}: capped at {} by pid {}, which will put {} back\n",
                          row.gpu->index, power::watts(row.held->set_mw), row.held->pid,
                          power::watts(row.held->before_mw));
    if (!row.limits.unknown.empty())
      text += fmt::format("GPU {}: not known: {}\n", row.gpu->index,
                          printable(join(row.limits.unknown, "; ")));
  }
  print_out("{}", text);
}

void print_json(const Power& power, const std::vector<Row>& rows) {
  const auto number = [](std::optional<double> value) {
    return value ? nlohmann::json(*value) : nlohmann::json();
  };
  nlohmann::json gpus = nlohmann::json::array();
  for (const Row& row : rows) {
    const power::Limits& l = row.limits;
    nlohmann::json held;
    if (row.held != nullptr)
      held = {{"pid", row.held->pid},
              {"before_w", row.held->before_mw / 1000.0},
              {"set_w", row.held->set_mw / 1000.0}};
    gpus.push_back({{"index", row.gpu->index},
                    {"uuid", row.gpu->uuid},
                    {"pci", row.gpu->pci.text()},
                    {"name", row.gpu->name},
                    {"requested_w", number(in_watts(l.requested_mw))},
                    {"enforced_w", number(in_watts(l.enforced_mw))},
                    {"default_w", number(in_watts(l.default_mw))},
                    {"min_w", number(in_watts(l.min_mw))},
                    {"max_w", number(in_watts(l.max_mw))},
                    {"draw_w", number(l.draw_w)},
                    {"capped_by", held},
                    {"unknown", l.unknown}});
  }
  const nlohmann::json object = {
      {"schema", 1}, {"simulated", power.inventory.simulated}, {"gpus", gpus}};
  print_out("{}\n", object.dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
}

// Everything that can be known before a card is touched.
Result<std::vector<power::Change>> plan(const PowerOptions& options, const Power& power) {
  if (!power.selection.mig.empty())
    return fail("--gpu " + options.gpus + ": a power limit is a whole GPU's, not a MIG instance's",
                "name the GPU");
  if (power.selection.empty())
    return fail("--gpu " + options.gpus + ": no GPU to set a limit of", "name one: --gpu 0");
  // Without /proc NVML itself answers, which says no.
  const auto uid_map = read_file("/proc/self/uid_map");
  CORRAL_CHECK(power::check_rights(::geteuid(), uid_map ? *uid_map : ""));
  std::vector<power::Card> cards;
  for (const unsigned index : power.selection.gpus) {
    CORRAL_TRY(power::Card card, power::find_card(*power.nvml, power.inventory.gpus[index]));
    // A dry run puts nothing back: what a killed holder left is not in the way of the real one.
    const bool held =
        std::ranges::find(power.held, card.uuid, &power::JournalEntry::gpu) != power.held.end();
    if (!options.dry_run || held) CORRAL_CHECK(power::check_free(power.folder, card.uuid));
    cards.push_back(std::move(card));
  }
  return power::plan_cap(*power.nvml, cards, options.milliwatts);
}

std::string line_of(const power::Change& change, std::string_view until) {
  return fmt::format("GPU {} ({}): power limit {} -> {}{}", change.card.index, change.card.uuid,
                     power::watts(change.before_mw), power::watts(change.set_mw), until);
}

int dry_run(const PowerOptions& options, const Power& power,
            const std::vector<power::Change>& changes) {
  std::string text = power.inventory.simulated ? "SIMULATED machine\n" : "";
  for (const power::Change& change : changes) text += line_of(change, "") + "\n";
  if (options.job.empty())
    text += "it would stay\n";
  else
    text += fmt::format("it would be put back when {} ends; journal in {}\n",
                        printable(options.job.front()), power.folder);
  print_out("{}nothing was set (--dry-run)\n", text);
  return 0;
}

int set_for_good(const Power& power, const std::vector<power::Change>& changes) {
  const SignalsBlocked blocked;  // all or none, whatever comes
  if (const auto set = power::set_all(*power.nvml, changes); !set)
    return complain(set.error(), launch::kCannotSetUp);
  std::string text = power.inventory.simulated ? "SIMULATED machine\n" : "";
  for (const power::Change& change : changes) text += line_of(change, "") + "\n";
  text += "to put it back:\n";
  for (const power::Change& change : changes)
    text += fmt::format("  corral power cap --gpu {} --watts {}\n", change.card.uuid,
                        change.before_mw / 1000.0);
  print_out("{}", text);
  return 0;
}

void put_all_back(const PowerOptions& options, const Power& power,
                  const std::vector<power::HeldCap>& held) {
  for (const power::HeldCap& cap : held) {
    const auto done = power::put_back(*power.nvml, cap.change.card, cap.journal);
    const bool well = done.outcome == power::PutBack::Outcome::restored ||
                      done.outcome == power::PutBack::Outcome::as_before;
    if (!options.quiet || !well) power.say(done.text);
  }
}

int run_capped(const PowerOptions& options, const Power& power,
               const std::vector<power::Change>& changes, const std::vector<int>& inherited) {
  // Before the first limit is set: from here on a signal waits, and goes to the job.
  const auto signals = launch::SignalDesk::open();
  if (!signals) return complain(signals.error(), launch::kCannotSetUp);
  auto canary = launch::Canary::start();
  if (!canary) return complain(canary.error(), launch::kCannotSetUp);
  const auto held = power::hold(*power.nvml, changes, power.folder, power.self);
  if (!held) return complain(held.error(), launch::kCannotSetUp);
  if (!options.quiet)
    for (const power::Change& change : changes)
      power.say(line_of(change, " until the command ends"));

  launch::close_on_exec_except(inherited);
  const auto job = launch::start_job(
      {.command = options.job, .environment = launch::Environment(environ), .confinement = nullptr},
      *signals);
  if (!job) {
    put_all_back(options, power, *held);
    return complain(job.error().error, job.error().exit_code);
  }
  // Without grace: the cap is the command's, not of what it leaves behind.
  const launch::JobEnd end = launch::supervise(*job, *signals, *canary, 0, [] {});
  put_all_back(options, power, *held);
  return WIFSIGNALED(end.wait_status) ? launch::kSignalBase + WTERMSIG(end.wait_status)
                                      : WEXITSTATUS(end.wait_status);
}

int run(const Arguments& arguments) {
  const std::vector<int> inherited = launch::open_descriptors();
  if (wants_help(arguments)) {
    print_out("{}", power_help());
    return 0;
  }
  const auto options = parse_power_options(arguments);
  if (!options) return complain(options.error(), launch::kUsage);
  const auto power = open_power(*options);
  if (!power) return complain(power.error(), launch::kCannotSetUp);
  if (options->verb == PowerOptions::Verb::show) {
    const std::vector<Row> rows = read_rows(*power);
    options->json ? print_json(*power, rows) : print_table(*power, rows);
    return 0;
  }
  const auto changes = plan(*options, *power);
  if (!changes) return complain(changes.error(), launch::kCannotSetUp);
  if (options->dry_run) return dry_run(*options, *power, *changes);
  return options->job.empty() ? set_for_good(*power, *changes)
                              : run_capped(*options, *power, *changes, inherited);
}

const Registered<Command> command{Command{.name = "power",
                                          .summary = "show and cap GPU power; a cap is put back",
                                          .run = run,
                                          .help = power_help}};

}  // namespace
}  // namespace corral::cli

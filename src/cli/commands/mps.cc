// SPDX-License-Identifier: Apache-2.0
// corral mps: one MPS daemon for each GPU, confined to it.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"
#include "cli/command.h"
#include "cli/mps_options.h"
#include "cli/mps_view.h"
#include "cli/print.h"
#include "cli/watched_job.h"
#include "gpu/machine.h"
#include "gpu/selector.h"
#include "isolate/apply.h"
#include "launch/descriptors.h"
#include "mps/control.h"
#include "mps/lifecycle.h"

namespace corral::cli {
namespace {

constexpr std::chrono::milliseconds kPatience{2000};

struct Mps {
  gpu::OpenedMachine machine;
  gpu::Selection selection;
  std::vector<std::string> bases;
};

Result<Mps> open_mps(const MpsOptions& options) {
  Mps out{.machine = gpu::open_machine(), .selection = {}, .bases = {}};
  CORRAL_TRY(out.selection, gpu::select(options.gpus, out.machine.inventory));
  out.bases = mps::base_folders(out.machine.machine, ::geteuid(), std::getenv("XDG_RUNTIME_DIR"));
  if (options.verb == MpsOptions::Verb::status) return out;
  if (!out.selection.mig.empty())
    return fail("--gpu " + options.gpus + ": MPS daemons are for whole GPUs here",
                "for a MIG instance start nvidia-cuda-mps-control by hand, with its UUID in "
                "CUDA_VISIBLE_DEVICES");
  if (out.selection.empty()) return fail("--gpu " + options.gpus + ": no GPU", "name one: --gpu 0");
  return out;
}

isolate::Request request_for(const MpsOptions& options, const Mps& mps, unsigned index,
                             const std::string& program) {
  isolate::Request request{.methods = options.methods,
                           .tight = false,
                           .allow_unenforced = options.allow_unenforced,
                           .refuse_paths = {},
                           .inventory = mps.machine.inventory,
                           .allowed = {},
                           .command = {program, "-d"},
                           .limits = {},
                           .hardware = mps.machine.machine.hardware,
                           .by_hand = false};
  request.allowed.gpus = {index};
  request.allowed.requested = true;
  return request;
}

std::string prefix(const Mps& mps) {
  return mps.machine.inventory.simulated ? "corral (SIMULATED): " : "corral: ";
}

// Not every daemon is what was asked for: one that nothing confines is not.
Result<std::string> runs_already(const MpsOptions& options, const mps::Daemon& daemon) {
  const bool may_be_open =
      options.allow_unenforced ||
      std::ranges::find(options.methods, isolate::Method::env) != options.methods.end();
  std::string text =
      fmt::format("an MPS daemon runs already, pid {}, {}, pipe {}", daemon.record.pid,
                  mps::confinement_text(daemon.record), printable(daemon.folder.pipe()));
  if (daemon.record.enforced == "none" && !may_be_open)
    return fail(std::move(text), "end it first: corral mps stop --gpu " + daemon.record.gpu);
  return text;
}

Result<std::string> start_one(const MpsOptions& options, const Mps& mps, unsigned index,
                              const std::string& program, const launch::SignalDesk& signals) {
  const gpu::Gpu& gpu = mps.machine.inventory.gpus[index];
  if (gpu.uuid.empty()) return fail("its UUID is not known, by which its daemon would be named");
  const mps::Folder folder = mps::folder_of(mps.bases.front(), gpu.uuid);
  CORRAL_TRY(const Fd lock, mps::take_lock(folder));
  CORRAL_TRY(const auto there, mps::find_daemon(mps.bases, gpu.uuid));
  if (there && there->alive) return runs_already(options, *there);
  CORRAL_TRY(const isolate::Plan plan,
             isolate::plan_for(request_for(options, mps, index, program)));
  CORRAL_TRY(const isolate::Prepared prepared, isolate::prepare(plan));
  CORRAL_TRY(const mps::Record record,
             mps::start_daemon(program, folder, gpu.uuid, prepared, signals));
  return fmt::format("MPS daemon started, pid {}, {}\n  corral run --gpus {} --mps 30% -- CMD…",
                     record.pid, mps::confinement_text(record), index);
}

std::string clients_text(const std::vector<mps::Client>& clients) {
  std::vector<std::string> texts;
  for (const mps::Client& client : clients)
    texts.push_back(client.command.empty()
                        ? fmt::format("pid {}", client.pid)
                        : fmt::format("pid {} ({})", client.pid, printable(client.command)));
  return join_and(texts);
}

// What a start left that was killed.
Result<std::string> stop_unrecorded(const mps::Folder& folder) {
  const auto pid = mps::unrecorded(folder);
  if (!pid) return "there is no MPS daemon of Corral's";
  CORRAL_TRY(const Fd lock, mps::take_lock(folder));
  CORRAL_TRY(const auto there, mps::look(folder));
  if (there) return fail("its MPS daemon has just been started", "corral mps stop again ends it");
  mps::end_unrecorded(folder);
  return fmt::format("MPS daemon, pid {}, of a start that was killed, was killed too", *pid);
}

Result<std::string> stop_one(const MpsOptions& options, const Mps& mps, unsigned index,
                             const std::string& program) {
  const gpu::Gpu& gpu = mps.machine.inventory.gpus[index];
  CORRAL_TRY(auto daemon, mps::find_daemon(mps.bases, gpu.uuid));
  if (!daemon) return stop_unrecorded(mps::folder_of(mps.bases.front(), gpu.uuid));
  if (daemon->uid != ::geteuid())
    return fail(fmt::format("its MPS daemon (pid {}) is uid {}'s", daemon->record.pid, daemon->uid),
                "stop it as that user");
  CORRAL_TRY(const Fd lock, mps::take_lock(daemon->folder));
  // Somebody may have stopped it, or started another, before the lock was ours.
  CORRAL_TRY(daemon, mps::look(daemon->folder));
  if (!daemon) return "there is no MPS daemon of Corral's";
  if (const auto servers = mps::servers_left(daemon->folder);
      !daemon->alive && !servers.empty() && !options.force)
    return fail(mps::servers_left_text(servers), mps::kEndServers);
  if (daemon->alive) {
    const auto serving = mps::ask_what_it_serves(program, daemon->folder.pipe(), kPatience);
    const std::vector<mps::Client> clients =
        serving ? mps::clients_of(host::Root(), *serving) : std::vector<mps::Client>{};
    if (!clients.empty() && !options.force)
      return fail("its MPS daemon has clients, which would end with it: " + clients_text(clients),
                  "wait for them, or corral mps stop --force");
    if (!serving && !options.force)
      return fail(serving.error().what + "; whether it has clients is not known",
                  "corral mps stop --force ends it all the same");
    if (serving && !clients.empty())
      CORRAL_CHECK(mps::terminate_clients(program, daemon->folder.pipe(), *serving, kPatience));
  }
  CORRAL_TRY(const std::string how, mps::stop_daemon(program, *daemon));
  return fmt::format("MPS daemon, pid {}, {}", daemon->record.pid, how);
}

// Each GPU by itself: one that fails does not keep the others from theirs.
template <class Step>
int for_each_gpu(const Mps& mps, const Step& step) {
  int code = 0;
  for (const unsigned index : mps.selection.gpus) {
    const auto said = step(index);
    if (said) {
      print_out("{}GPU {}: {}\n", prefix(mps), index, *said);
    } else {
      Error error = said.error();
      error.what = fmt::format("GPU {}: {}", index, error.what);
      code = complain(error, launch::kCannotSetUp);
      if (said.error().sys == EINTR) break;
    }
  }
  return code;
}

// A daemon that outlives its caller must not hold his locks and pipes. What he closed is /dev/null
// by now (main), and the daemon's own sockets must not get its number.
void give_standard_descriptors_only() {
  const std::vector<int> standard = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};
  launch::close_on_exec_except(standard);
  for (const int fd : standard) ::fcntl(fd, F_SETFD, 0);
}

int start(const MpsOptions& options, const Mps& mps) {
  const auto program = mps::find_control_program();
  if (!program) return complain(program.error(), launch::kCannotSetUp);
  const auto signals = launch::SignalDesk::open();
  if (!signals) return complain(signals.error(), launch::kCannotSetUp);
  give_standard_descriptors_only();
  return for_each_gpu(
      mps, [&](unsigned index) { return start_one(options, mps, index, *program, *signals); });
}

int stop(const MpsOptions& options, const Mps& mps) {
  const auto program = mps::find_control_program();
  if (!program) return complain(program.error(), launch::kCannotSetUp);
  return for_each_gpu(mps, [&](unsigned index) { return stop_one(options, mps, index, *program); });
}

int status(const MpsOptions& options, const Mps& mps) {
  const MpsView view =
      look_at_mps(mps.machine, mps.selection, mps.bases, mps::find_control_program());
  if (options.json)
    print_out("{}\n", mps_json(view).dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
  else
    print_out("{}", mps_text(view));
  return 0;
}

int run(const Arguments& arguments) {
  if (wants_help(arguments)) {
    print_out("{}", mps_help());
    return 0;
  }
  const auto options = parse_mps_options(arguments);
  if (!options) return complain(options.error(), launch::kUsage);
  const auto mps = open_mps(*options);
  if (!mps) return complain(mps.error(), launch::kCannotSetUp);
  switch (options->verb) {
    case MpsOptions::Verb::start:
      return start(*options, *mps);
    case MpsOptions::Verb::stop:
      return stop(*options, *mps);
    case MpsOptions::Verb::status:
      return status(*options, *mps);
  }
  return launch::kUsage;
}

const Registered<Command> command{
    Command{.name = "mps",
            .summary = "share GPUs by MPS: a confined daemon for each",
            .run = run,
            .help = mps_help}};

}  // namespace
}  // namespace corral::cli

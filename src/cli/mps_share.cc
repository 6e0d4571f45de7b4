// SPDX-License-Identifier: Apache-2.0
#include "cli/mps_share.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "base/text.h"
#include "mps/clients.h"
#include "mps/control.h"
#include "mps/daemon.h"

namespace corral::cli {
namespace {

constexpr std::chrono::milliseconds kPatience{1000};

// What is there already, and what that makes together. Nothing is said where it cannot be known: an
// ordinary user may not ask root's daemon.
std::vector<std::string> crowding(const mps::Share& share, const mps::Daemon& daemon,
                                  const gpu::OpenedMachine& machine, const gpu::Gpu& gpu) {
  const auto program = mps::find_control_program();
  if (!program) return {};
  const auto serving = mps::ask_what_it_serves(*program, daemon.folder.pipe(), kPatience);
  if (!serving) return {};
  std::vector<mps::Client> clients = mps::clients_of(host::Root(), *serving);
  if (clients.empty()) return {};
  clients.push_back({.pid = 0,
                     .server = 0,
                     .command = {},
                     .limits_known = true,
                     .percent = share.percent,
                     .memory_bytes = share.memory_bytes});
  std::vector<std::string> said;
  for (const std::string& line :
       mps::overcommitment(mps::sum_of(clients), gpu::memory_total_bytes(machine, gpu)))
    said.push_back("MPS: with those that are there " + line);
  return said;
}

}  // namespace

Result<JoinedMps> join_mps(const mps::Share& share, const gpu::OpenedMachine& machine,
                           const isolate::Selection& allowed) {
  if (!allowed.mig.empty())
    return fail("--mps: a MIG instance is given, and the daemons are for whole GPUs here",
                "give a GPU");
  if (allowed.gpus.size() != 1)
    return fail(
        fmt::format("--mps: one daemon serves one GPU, and {} are given", allowed.gpus.size()),
        "give one: --gpus 0");
  const gpu::Gpu& gpu = machine.inventory.gpus[allowed.gpus.front()];
  const auto bases =
      mps::base_folders(machine.machine, ::geteuid(), std::getenv("XDG_RUNTIME_DIR"));
  CORRAL_TRY(const auto daemon, mps::find_daemon(bases, gpu.uuid));
  const std::string hint = fmt::format("start one: corral mps start --gpu {}", gpu.index);
  if (!daemon)
    return fail(fmt::format("--mps: GPU {} has no MPS daemon of Corral's", gpu.index), hint);
  if (!daemon->alive)
    return fail(fmt::format("--mps: GPU {}'s MPS daemon was killed (pid {})", gpu.index,
                            daemon->record.pid),
                hint);
  JoinedMps joined{
      .pipe_folder = daemon->folder.pipe(),
      .settings = mps::client_settings(share, daemon->folder.pipe(), daemon->folder.log()),
      .notes = {},
      .share = {.percent = share.percent,
                .memory_bytes = share.memory_bytes,
                .gpu = gpu.index,
                .daemon_pid = daemon->record.pid,
                .daemon_enforced = daemon->record.enforced}};
  joined.notes.push_back(
      fmt::format("MPS: each process gets at most {} of GPU {}, through the daemon pid {}: {}",
                  mps::share_text(share), gpu.index, daemon->record.pid,
                  mps::confinement_text(daemon->record)));
  for (std::string& line : crowding(share, *daemon, machine, gpu))
    joined.notes.push_back(std::move(line));
  return joined;
}

std::string confined_pipe_of_caller(const gpu::Inventory& inventory,
                                    const isolate::Selection& allowed) {
  const char* pipe = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  const auto daemon = pipe != nullptr ? mps::daemon_behind(pipe) : std::nullopt;
  if (!daemon || daemon->record.enforced == "none") return "";
  const bool given = std::ranges::any_of(allowed.gpus, [&](unsigned index) {
    return inventory.gpus[index].uuid == daemon->record.gpu;
  });
  return given ? pipe : "";
}

}  // namespace corral::cli

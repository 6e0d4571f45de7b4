// SPDX-License-Identifier: Apache-2.0
#include "cli/mps_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "host/root.h"

namespace corral::cli {
namespace {

constexpr std::chrono::milliseconds kPatience{2000};
constexpr std::string_view kDefaultPipes =
    "the driver's default, /tmp/nvidia-mps or /run/nvidia-mps";

MpsAnswer ask(const Result<std::string>& program, const std::string& pipe_folder) {
  MpsAnswer answer;
  if (!program) {
    answer.why_not = program.error().what;
    return answer;
  }
  auto serving = mps::ask_what_it_serves(*program, pipe_folder, kPatience);
  if (!serving) {
    answer.why_not = serving.error().what;
    return answer;
  }
  answer.clients = mps::clients_of(host::Root(), *serving);
  answer.serving = *std::move(serving);
  return answer;
}

MpsOfGpu look_at_gpu(const gpu::OpenedMachine& machine, unsigned index,
                     const std::vector<std::string>& bases, const Result<std::string>& program) {
  const gpu::Gpu& gpu = machine.inventory.gpus[index];
  MpsOfGpu out{.gpu = &gpu, .daemon = {}, .trouble = {}, .memory_bytes = {}, .answer = {}};
  auto daemon = mps::find_daemon(bases, gpu.uuid);
  if (!daemon) {
    out.trouble = daemon.error().what;
    return out;
  }
  out.daemon = *std::move(daemon);
  if (out.daemon && out.daemon->alive) out.answer = ask(program, out.daemon->folder.pipe());
  if (!out.answer.clients.empty()) out.memory_bytes = gpu::memory_total_bytes(machine, gpu);
  return out;
}

// The clients of a daemon, Corral's or not: each, their sum, and what is wrong with it.
std::string clients_text(const MpsAnswer& answer, std::optional<std::uint64_t> card_bytes) {
  if (!answer.serving)
    return answer.why_not.empty()
               ? ""
               : fmt::format("  clients not known: {}\n", printable(answer.why_not));
  std::string text;
  for (const mps::Client& client : answer.clients) {
    std::string limits = "limits not readable";
    if (client.limits_known) {
      limits = client.percent ? fmt::format("{} %", *client.percent) : "no limit";
      if (client.memory_bytes) limits += fmt::format(", {} MiB", *client.memory_bytes >> 20);
    }
    text += fmt::format("  client pid {} ({}): {}\n", client.pid,
                        client.command.empty() ? "command not readable" : printable(client.command),
                        limits);
  }
  if (answer.clients.empty()) text += "  no client\n";
  const mps::Sum sum = mps::sum_of(answer.clients);
  if (sum.clients > 1) text += fmt::format("  together: {}\n", mps::sum_text(sum));
  for (const std::string& line : mps::overcommitment(sum, card_bytes)) text += "  " + line + "\n";
  return text;
}

std::string gpu_text(const MpsOfGpu& one) {
  const std::string name = fmt::format("GPU {}: ", one.gpu->index);
  if (!one.trouble.empty()) return name + printable(one.trouble) + "\n";
  if (!one.daemon) return name + "no daemon of Corral's\n";
  const mps::Daemon& daemon = *one.daemon;
  if (!daemon.alive)
    return name + fmt::format(
                      "a daemon was killed (pid {}); its files are left in {}: corral mps "
                      "start or stop removes them\n",
                      daemon.record.pid, printable(daemon.folder.path));
  return name +
         fmt::format("daemon pid {}, uid {}, {}, pipe {}\n", daemon.record.pid, daemon.uid,
                     mps::confinement_text(daemon.record), printable(daemon.folder.pipe())) +
         clients_text(one.answer, one.memory_bytes);
}

std::string foreign_text(const ForeignMps& one) {
  const mps::SeenDaemon& daemon = one.daemon;
  std::string where = "its environment cannot be read";
  if (daemon.environment_known)
    where = fmt::format(
        "pipe {}, {}",
        daemon.pipe_folder ? printable(*daemon.pipe_folder) : std::string(kDefaultPipes),
        daemon.visible_devices ? "CUDA_VISIBLE_DEVICES=" + printable(*daemon.visible_devices)
                               : "every GPU");
  std::string text =
      fmt::format("other daemon: pid {}, uid {}, {}{}\n", daemon.pid, daemon.uid, where,
                  one.answer.serving
                      ? fmt::format(", dialect {}", mps::dialect_name(one.answer.serving->dialect))
                      : "");
  return text + clients_text(one.answer, {});
}

nlohmann::json client_json(const mps::Client& client) {
  const auto value = [](const auto& optional) {
    return optional ? nlohmann::json(*optional) : nlohmann::json();
  };
  return {{"pid", client.pid},
          {"server_pid", client.server},
          {"command", client.command},
          {"limits_known", client.limits_known},
          {"percent", value(client.percent)},
          {"memory_bytes", value(client.memory_bytes)}};
}

// "clients" is null where they are not known.
nlohmann::json answer_json(const MpsAnswer& answer) {
  nlohmann::json object = {{"dialect", nullptr}, {"clients", nullptr}, {"why_not", answer.why_not}};
  if (!answer.serving) return object;
  object["dialect"] = answer.serving->dialect == mps::Dialect::v3 ? "v3" : "legacy";
  object["clients"] = nlohmann::json::array();
  for (const mps::Client& client : answer.clients) object["clients"].push_back(client_json(client));
  return object;
}

}  // namespace

MpsView look_at_mps(const gpu::OpenedMachine& machine, const gpu::Selection& selection,
                    const std::vector<std::string>& bases, const Result<std::string>& program) {
  MpsView view{.simulated = machine.inventory.simulated, .gpus = {}, .others = {}};
  for (const unsigned index : selection.gpus)
    view.gpus.push_back(look_at_gpu(machine, index, bases, program));
  for (mps::SeenDaemon& seen : mps::control_daemons(host::Root())) {
    // Corral's own have a record, also those of GPUs that were not asked for.
    const auto recorded = seen.pipe_folder ? mps::daemon_behind(*seen.pipe_folder) : std::nullopt;
    if (recorded && recorded->record.pid == seen.pid) continue;
    const bool ours = std::ranges::any_of(view.gpus, [&](const MpsOfGpu& one) {
      return one.daemon && one.daemon->alive && one.daemon->record.pid == seen.pid;
    });
    if (ours) continue;
    ForeignMps foreign{.daemon = std::move(seen), .answer = {}};
    if (foreign.daemon.pipe_folder) foreign.answer = ask(program, *foreign.daemon.pipe_folder);
    view.others.push_back(std::move(foreign));
  }
  return view;
}

std::string mps_text(const MpsView& view) {
  std::string text = view.simulated ? "SIMULATED machine\n" : "";
  for (const MpsOfGpu& one : view.gpus) text += gpu_text(one);
  for (const ForeignMps& one : view.others) text += foreign_text(one);
  return text;
}

nlohmann::json mps_json(const MpsView& view) {
  nlohmann::json gpus = nlohmann::json::array();
  for (const MpsOfGpu& one : view.gpus) {
    nlohmann::json object = {{"index", one.gpu->index},
                             {"uuid", one.gpu->uuid},
                             {"state", "none"},
                             {"trouble", one.trouble}};
    if (!one.trouble.empty()) object["state"] = "unknown";
    if (one.daemon) {
      object["state"] = one.daemon->alive ? "running" : "dead";
      object["pid"] = one.daemon->record.pid;
      object["uid"] = one.daemon->uid;
      object["enforced"] = one.daemon->record.enforced;
      object["pipe"] = one.daemon->folder.pipe();
      object.update(answer_json(one.answer));
    }
    gpus.push_back(std::move(object));
  }
  nlohmann::json others = nlohmann::json::array();
  for (const ForeignMps& one : view.others) {
    nlohmann::json object = {{"pid", one.daemon.pid},
                             {"uid", one.daemon.uid},
                             {"environment_known", one.daemon.environment_known},
                             {"pipe", nullptr},
                             {"visible_devices", nullptr}};
    if (one.daemon.pipe_folder) object["pipe"] = *one.daemon.pipe_folder;
    if (one.daemon.visible_devices) object["visible_devices"] = *one.daemon.visible_devices;
    object.update(answer_json(one.answer));
    others.push_back(std::move(object));
  }
  return {{"schema", 1}, {"simulated", view.simulated}, {"gpus", gpus}, {"other_daemons", others}};
}

}  // namespace corral::cli

// SPDX-License-Identifier: Apache-2.0
#include "isolate/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "isolate/agents.h"
#include "isolate/asked_gpus.h"
#include "isolate/plan.h"

namespace corral::isolate {
namespace {

using Answer = AskedGpus::Answer;
using Manner = Agent::Manner;

constexpr const char* kGenerate =
    "no CDI file here names the GPU: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml";

struct Scene {
  const Request& request;
  const Host& host;
  const Plan& plan;

  bool cgroup() const { return plan.has(Layer::cgroup2) || plan.has(Layer::cgroup1); }

  // The selection as --gpus takes it; empty: a UUID is not known, or there is no selection.
  std::string selection() const {
    if (request.allowed.requested && request.allowed.empty()) return "none";
    for (const Setting& setting : plan.environment)
      if (setting.name == "CUDA_VISIBLE_DEVICES") return setting.value;
    return {};
  }

  // "corral run --gpus GPU-1aaa -- CMD", for use where the work is really done.
  std::string corral_there(std::string_view command) const {
    const std::string gpus = selection();
    return fmt::format("corral run{} -- {}", gpus.empty() ? "" : " --gpus " + gpus, command);
  }
};

// "--device nvidia.com/gpu=0 --device …"; empty: a GPU has no name, or no whole GPU was given.
std::string cdi_options(const Scene& scene) {
  if (!scene.request.allowed.mig.empty()) return {};
  std::string options;
  for (const unsigned index : scene.request.allowed.gpus) {
    const auto name = cdi_name(scene.host.cdi, scene.request.inventory.gpus[index]);
    if (!name) return {};
    options += (options.empty() ? "--device " : " --device ") + shell_quote(*name);
  }
  return options;
}

// What was asked for that must go.
std::string without(const ContainerCommand& command) {
  return command.opens_everything.empty() ? "" : ", without " + command.opens_everything;
}

std::string engine_form(const Scene& scene, const FoundAgent& found,
                        const ContainerCommand& command) {
  const std::string title = found.title();
  const std::string gpus = scene.selection();
  if (gpus.empty()) return {};
  if (gpus == "none")
    return fmt::format(
        "{} -e NVIDIA_VISIBLE_DEVICES=void …, without --gpus, --device and "
        "--privileged",
        title);
  if (const std::string cdi = cdi_options(scene); !command.cdi.empty() && !cdi.empty())
    return fmt::format("{} {} …{}", title, cdi, without(command));
  if (command.visible_devices && command.gpus.empty())
    return fmt::format("{} --runtime nvidia -e NVIDIA_VISIBLE_DEVICES={} …{}", title, gpus,
                       without(command));
  return fmt::format("{} --gpus '\"device={}\"' …{}", title, gpus, without(command));
}

std::string podman_form(const Scene& scene, const FoundAgent& found,
                        const ContainerCommand& command) {
  if (scene.request.allowed.empty()) return found.title() + " …, without --device and --privileged";
  const std::string cdi = cdi_options(scene);
  if (cdi.empty()) return kGenerate;
  return fmt::format("{} {} …{}", found.title(), cdi, without(command));
}

// "; --gpus 1 asks for …" behind another sentence.
std::string and_asked(const Scene& scene, const AskedGpus& asked) {
  if (!scene.request.allowed.requested || asked.words.empty()) return {};
  return "; " + asked.words;
}

bool starts_container(const FoundAgent& found) {
  return found.verb == "run" || found.verb == "create";
}

Advice on_engine(const Scene& scene, const FoundAgent& found, const ContainerCommand& command) {
  const std::string_view doer = found.agent->doer;
  const std::string title = found.title();
  if (command.remote)
    return {.what = fmt::format("\"{}\" works on another host, of whose GPUs nothing is known here",
                                title),
            .instead = {},
            .leaves = true};
  if (!starts_container(found)) {
    const bool file = found.verb == "compose" || found.agent->name.ends_with("compose");
    std::string what =
        fmt::format("\"{}\" has {} work outside of this run, with the GPUs that {}", title, doer,
                    file ? "its file names; the file was not read"
                         : "the container or the daemon's settings give");
    const std::string gpus = scene.selection();
    std::string instead;
    if (file && !gpus.empty() && gpus != "none")
      instead = fmt::format("in the file: device_ids: [\"{}\"] and capabilities: [gpu]",
                            fmt::join(split(gpus, ','), "\", \""));
    return {.what = std::move(what), .instead = std::move(instead), .leaves = true};
  }
  const AskedGpus asked = judge_asked_gpus(command, scene.request, scene.host.cdi);
  const bool right = asked.answer == Answer::within || !scene.request.allowed.requested;
  return {.what = fmt::format("\"{}\" has {} start the container, outside of this run: neither "
                              "confined nor watched{}",
                              title, doer, and_asked(scene, asked)),
          .instead = right ? "" : engine_form(scene, found, command),
          .leaves = true};
}

// Root's podman with cgroups of its own left ours, one without rights over them stayed; under
// Landlock and in our user namespace it did not start; mounts of ours went along (podman 4.3.1 with
// runc 1.1.5, cgroupfs, kernel 6.18). That systemd moves a container is its documentation's word.
std::optional<Advice> on_podman(const Scene& scene, const FoundAgent& found,
                                const ContainerCommand& command) {
  const std::string title = found.title();
  if (command.remote) return on_engine(scene, found, command);
  const std::string form =
      starts_container(found) ? podman_form(scene, found, command) : std::string();
  if (scene.plan.has(Layer::landlock) || scene.plan.user_namespaces)
    return Advice{
        .what = fmt::format("\"{}\" cannot start a container in here: {}", title,
                            scene.plan.has(Layer::landlock)
                                ? "Landlock refuses the mounts that it makes"
                                : "a user namespace around it leaves it no further users"),
        .instead = scene.host.root
                       ? "corral run --enforce mount …: what it covers is covered in the "
                         "container too"
                       : (form.empty() ? "" : "without corral before it: " + form),
        .leaves = false};
  const AskedGpus asked = judge_asked_gpus(command, scene.request, scene.host.cdi);
  const bool right = asked.answer == Answer::within || asked.answer == Answer::nothing;
  if (scene.plan.has(Layer::mount)) {
    if (right) return std::nullopt;
    return Advice{.what = fmt::format("\"{}\" keeps the mounts of this run{}", title,
                                      and_asked(scene, asked)),
                  .instead = form,
                  .leaves = false};
  }
  if (scene.host.root)
    return Advice{
        .what = fmt::format("\"{}\" as root moves the container to a cgroup outside of this run, "
                            "where nothing is refused{}",
                            title, and_asked(scene, asked)),
        .instead = asked.answer == Answer::within ? "" : form,
        .leaves = true};
  return Advice{
      .what = fmt::format("\"{}\" stays in this run unless systemd is its cgroup manager, which "
                          "moves the container to a scope of its own{}",
                          title, and_asked(scene, asked)),
      .instead = right ? fmt::format("podman --cgroup-manager cgroupfs {} …", found.verb) : form,
      .leaves = true};
}

std::optional<Advice> on_own_container(const Scene& scene, const FoundAgent& found) {
  if (!scene.plan.has(Layer::landlock)) return std::nullopt;
  return Advice{.what = fmt::format("\"{}\" cannot start a container in here: Landlock refuses the "
                                    "mounts that it makes",
                                    found.title()),
                .instead = "corral run --enforce mount …",
                .leaves = false};
}

// --scope starts the command itself, in another cgroup.
std::optional<Advice> on_systemd_run(const Scene& scene, const FoundAgent& found) {
  const bool scope = std::ranges::find(found.arguments, "--scope") != found.arguments.end();
  const std::string instead = "systemd-run … " + scene.corral_there("CMD");
  if (!scope)
    return Advice{.what =
                      "\"systemd-run\" has systemd start the command, outside of this run: "
                      "neither confined nor watched",
                  .instead = instead,
                  .leaves = true};
  if (!scene.cgroup() && scene.plan.limits.empty()) return std::nullopt;
  return Advice{.what = "\"systemd-run --scope\" moves its command out of the cgroup of this run",
                .instead = instead,
                .leaves = true};
}

std::string lxc_form(const Scene& scene, const FoundAgent& found) {
  std::string text;
  for (const unsigned index : scene.request.allowed.gpus)
    text +=
        fmt::format("{}{} config device add CONTAINER gpu{} gpu pci={}", text.empty() ? "" : "; ",
                    found.agent->name, index, scene.request.inventory.gpus[index].pci.text());
  return found.agent->name == "lxc-attach" ? std::string() : text;
}

std::string ctr_form(const Scene& scene) {
  if (!scene.request.inventory.hidden.empty() || scene.request.allowed.empty()) return {};
  std::string options;
  for (const unsigned index : scene.request.allowed.gpus)
    options += fmt::format(" --gpus {}", index);
  return fmt::format("ctr run{} …", options);
}

// Somebody else does the work, whatever the layers are.
Advice on_others(const Scene& scene, const FoundAgent& found) {
  const auto says = [&](std::string_view how, std::string instead) {
    return Advice{
        .what = fmt::format("\"{}\" {}: neither confined nor watched", found.title(), how),
        .instead = std::move(instead),
        .leaves = true};
  };
  const std::string outside =
      fmt::format("has {} do the work, outside of this run", found.agent->doer);
  switch (found.agent->manner) {
    case Manner::slurm_step:
      return says(
          "has Slurm's daemon start the program, on this node or another, outside of this "
          "run",
          "srun … corral run --gpus all -- PROGRAM: all are those that Slurm gave");
    case Manner::slurm_shell:
      return says("starts its command here, but what srun starts in it is outside of this run",
                  "salloc … and in it: srun corral run --gpus all -- PROGRAM");
    case Manner::queue:
      return says(outside + ", later", "in the script: corral run --gpus all -- PROGRAM");
    case Manner::ssh:
      return says("has sshd start the command, outside of this run",
                  "ssh HOST corral run --gpus … -- CMD");
    case Manner::at:
      return says(
          outside + ", later",
          fmt::format("echo {} | {} …", shell_quote(scene.corral_there("CMD")), found.agent->name));
    case Manner::tmux:
      return says("may have a server that runs already start the command, outside of this run",
                  "in tmux: " + scene.corral_there("CMD"));
    case Manner::ctr:
      return says(outside, ctr_form(scene));
    case Manner::cluster:
      return says(outside,
                  "in the pod: resources: {limits: {nvidia.com/gpu: N}}; the cluster "
                  "chooses which");
    case Manner::lxc:
      return says(outside, lxc_form(scene, found));
    default:
      return says(outside, "");
  }
}

bool has_other_context(const Host& host) {
  return host::find_variable(host.variables, "DOCKER_CONTEXT").value_or("default") != "default";
}

bool is_elsewhere(const Host& host, std::string_view variable) {
  const std::string value = host::find_variable(host.variables, variable).value_or("");
  return value.find("://") != value.npos && !value.starts_with("unix://");
}

std::optional<Advice> on_agent(const Scene& scene, const FoundAgent& found) {
  ContainerCommand command = parse_container_command(found.arguments);
  switch (found.agent->manner) {
    case Manner::engine:
      command.remote = command.remote || is_elsewhere(scene.host, "DOCKER_HOST") ||
                       has_other_context(scene.host);
      return on_engine(scene, found, command);
    case Manner::podman:
      command.remote = command.remote || is_elsewhere(scene.host, "CONTAINER_HOST");
      return on_podman(scene, found, command);
    case Manner::own_container:
      return on_own_container(scene, found);
    case Manner::systemd_run:
      return on_systemd_run(scene, found);
    default:
      return on_others(scene, found);
  }
}

// A GPU of the selection that the surroundings did not give.
std::optional<Advice> on_selection(const Request& request, const Around& around) {
  if (!request.allowed.requested || around.held.value_or(true)) return std::nullopt;
  const bool certain = around.given.has_value();
  const auto given = certain ? around.given : given_by_minor(around, request.inventory);
  if (!given) return std::nullopt;
  std::vector<std::string> beyond;
  for (const unsigned index : request.allowed.gpus)
    if (std::ranges::find(*given, index) == given->end()) beyond.push_back(std::to_string(index));
  if (beyond.empty()) return std::nullopt;
  if (certain)
    return Advice{.what = fmt::format("GPU {} was not given to {} ({})", join_and(beyond),
                                      around.place.name, around.given_by),
                  .instead = "--gpus with one of those",
                  .leaves = false};
  return Advice{.what = fmt::format(
                    "GPU {} is perhaps another job's: {} was given {}, which mostly are the N "
                    "of /dev/nvidiaN",
                    join_and(beyond), around.place.name, around.given_by),
                .instead = around.place.kind == host::Surrounding::Kind::slurm
                               ? "scontrol show job -d $SLURM_JOB_ID shows which are the job's"
                               : "",
                .leaves = false};
}

}  // namespace

std::vector<Advice> advise_on_command(const Request& request, const Host& host, const Plan& plan) {
  const Scene scene{.request = request, .host = host, .plan = plan};
  std::vector<Advice> advice;
  for (const FoundAgent& found : find_agents(request.command))
    if (auto one = on_agent(scene, found);
        one && std::ranges::find(advice, one->what, &Advice::what) == advice.end()) {
      one->program = found.title();
      advice.push_back(*std::move(one));
    }
  return advice;
}

void add_advice(Plan& plan, const Request& request, const Host& host) {
  plan.around = judge_surroundings(host.surroundings, host.variables, request.inventory);
  for (const Around& around : plan.around)
    if (auto one = on_selection(request, around)) plan.advice.push_back(*std::move(one));
  for (Advice& one : advise_on_command(request, host, plan)) {
    if (one.leaves) {
      plan.not_covered.push_back(one.what);
      plan.open_ways.push_back("what \"" + printable(one.program) + "\" does");
    }
    plan.advice.push_back(std::move(one));
  }
}

}  // namespace corral::isolate

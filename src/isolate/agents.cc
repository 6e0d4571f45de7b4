// SPDX-License-Identifier: Apache-2.0
#include "isolate/agents.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/text.h"
#include "isolate/container_options.h"

namespace corral::isolate {
namespace {

using Manner = Agent::Manner;

constexpr std::string_view kDockerVerbs =
    " run create start restart exec compose build bake up service stack ";
constexpr std::string_view kComposeVerbs = " up run start restart exec create build watch ";
constexpr std::string_view kPodmanVerbs = " run create start restart exec compose build kube play ";
constexpr std::string_view kApptainerVerbs = " exec run shell test instance build ";
constexpr std::string_view kTmuxVerbs =
    " new new-session neww new-window splitw split-window respawnp respawn-pane respawnw "
    "respawn-window send send-keys run run-shell ";

// Where it is not said otherwise: by the documentation of each, not by trial.
constexpr Agent kAgents[] = {
    {"docker", Manner::engine, "the docker daemon", kDockerVerbs},
    {"nvidia-docker", Manner::engine, "the docker daemon", kDockerVerbs},
    {"docker-compose", Manner::engine, "the docker daemon", kComposeVerbs},
    {"nerdctl", Manner::engine, "containerd", kDockerVerbs},
    {"podman", Manner::podman, "podman", kPodmanVerbs},  // 4.3 tried
    {"podman-compose", Manner::podman, "podman", kComposeVerbs},
    {"buildah", Manner::podman, "buildah", " run build bud from "},
    {"apptainer", Manner::own_container, "apptainer", kApptainerVerbs},
    {"singularity", Manner::own_container, "singularity", kApptainerVerbs},
    {"enroot", Manner::own_container, "enroot", " start exec "},
    {"ch-run", Manner::own_container, "ch-run"},
    {"bwrap", Manner::own_container, "bwrap"},
    {"ctr", Manner::ctr, "containerd", " run start exec "},
    {"crictl", Manner::crictl, "the container runtime", " run runp start exec create "},
    {"kubectl", Manner::cluster, "the cluster", " run apply create replace exec debug scale "},
    {"oc", Manner::cluster, "the cluster", " run apply create replace exec debug scale rsh "},
    {"helm", Manner::cluster, "the cluster", " install upgrade "},
    {"lxc", Manner::lxc, "the container", " exec start restart launch "},
    {"incus", Manner::lxc, "the container", " exec start restart launch "},
    {"lxc-attach", Manner::lxc, "the container"},
    {"lxc-execute", Manner::own_container, "lxc-execute"},
    {"srun", Manner::slurm_step, "Slurm's daemon"},
    {"salloc", Manner::slurm_shell, "salloc"},
    {"sbatch", Manner::queue, "Slurm"},
    {"qsub", Manner::queue, "the batch system"},
    {"bsub", Manner::queue, "the batch system"},
    {"ssh", Manner::ssh, "sshd"},
    {"systemd-run", Manner::systemd_run, "systemd"},
    {"at", Manner::at, "atd"},
    {"batch", Manner::at, "atd"},
    {"tmux", Manner::tmux, "a tmux server that runs already", kTmuxVerbs},
};

bool has_verb(const Agent& agent, std::string_view verb) {
  return agent.verbs.find(" " + std::string(verb) + " ") != agent.verbs.npos;
}

// The first word that is one of the verbs; in `docker compose up` also the second one, which says
// whether anything is started.
std::optional<std::string> verb_of(const Agent& agent, const Words& arguments) {
  const bool engine = agent.manner == Manner::engine || agent.manner == Manner::podman;
  if (engine && !agent.name.ends_with("compose")) {
    std::string verb = parse_container_command(arguments).verb;
    if (!has_verb(agent, verb)) return std::nullopt;
    const bool starts = std::ranges::any_of(arguments, [](const std::string& word) {
      return kComposeVerbs.find(" " + word + " ") != kComposeVerbs.npos;
    });
    if (verb == "compose" && !starts) return std::nullopt;
    return verb;
  }
  const auto verb = std::ranges::find_if(
      arguments, [&](const std::string& word) { return has_verb(agent, word); });
  if (verb != arguments.end()) return *verb;
  // `tmux` alone makes a session.
  if (agent.manner == Manner::tmux && arguments.empty()) return std::string();
  return std::nullopt;
}

// `srun --version`, `docker run --help`: behind them nothing may come that would be started.
bool only_tells(const FoundAgent& found) {
  constexpr std::string_view kTelling[] = {"--help", "--usage", "--version", "-V"};
  const Words& words = found.arguments;
  const bool alone = words.size() == (found.verb.empty() ? 1 : 2) &&
                     (found.verb.empty() || words.front() == found.verb);
  return alone && std::ranges::find(kTelling, words.back()) != std::end(kTelling);
}

std::optional<FoundAgent> agent_of(const Words& command) {
  const std::string_view name = base_name(command.front());
  const auto agent = std::ranges::find(kAgents, name, &Agent::name);
  if (agent == std::end(kAgents)) return std::nullopt;
  FoundAgent found{.agent = &*agent, .arguments = {command.begin() + 1, command.end()}, .verb = {}};
  if (!agent->verbs.empty()) {
    auto verb = verb_of(*agent, found.arguments);
    if (!verb) return std::nullopt;
    found.verb = *std::move(verb);
  }
  if (only_tells(found)) return std::nullopt;
  return found;
}

}  // namespace

std::string FoundAgent::title() const {
  return std::string(agent->name) + (verb.empty() ? "" : " " + verb);
}

std::vector<FoundAgent> find_agents(const Words& argv) {
  std::vector<FoundAgent> all;
  for (const Words& command : commands_within(argv)) {
    auto found = agent_of(command);
    if (!found) continue;
    const bool twice = std::ranges::any_of(all, [&](const FoundAgent& one) {
      return one.agent == found->agent && one.arguments == found->arguments;
    });
    if (!twice) all.push_back(*std::move(found));
  }
  return all;
}

}  // namespace corral::isolate

// SPDX-License-Identifier: Apache-2.0
// Programs that hand their work to somebody else, or put it into a container of their own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "isolate/command_words.h"

namespace corral::isolate {

struct Agent {
  enum class Manner {
    engine,         // its daemon starts the container: docker
    podman,         // starts the container itself, and may move it to another cgroup
    own_container,  // starts the container itself, in the cgroup in which it is: apptainer
    ctr,            // containerd starts it
    crictl,         // a kubelet's runtime starts it
    cluster,        // kubectl
    lxc,            // in a container that is there already
    slurm_step,     // srun: slurmd starts it, here or elsewhere
    slurm_shell,    // salloc: starts its command here
    queue,          // sbatch, qsub, bsub
    ssh,
    systemd_run,
    at,
    tmux,
  };

  std::string_view name;
  Manner manner;
  std::string_view doer;  // who does the work: "the docker daemon"
  // The verbs that start something, with blanks around each; empty: the program has no verbs. What
  // only lists, stops or copies needs no word.
  std::string_view verbs = {};
};

// An agent in a command.
struct FoundAgent {
  const Agent* agent = nullptr;
  Words arguments;   // behind its name
  std::string verb;  // empty: it has none

  std::string title() const;  // "docker run"
};

// In the order of the command; the same program with the same arguments once.
std::vector<FoundAgent> find_agents(const Words& argv);

}  // namespace corral::isolate

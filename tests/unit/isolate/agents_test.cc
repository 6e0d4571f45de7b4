// SPDX-License-Identifier: Apache-2.0
// Which programs of a command hand work out, and which only look like it.
#include "isolate/agents.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace corral::isolate {
namespace {

// "docker run; ssh" for two agents.
std::string found(const Words& argv) {
  std::vector<std::string> titles;
  for (const FoundAgent& one : find_agents(argv)) titles.push_back(one.title());
  return join(titles, "; ");
}

TEST(agents, every_agent_is_known_by_what_it_starts) {
  const std::pair<Words, const char*> cases[] = {
      {{"docker", "run", "x"}, "docker run"},
      {{"docker", "container", "run", "x"}, "docker run"},
      {{"docker", "exec", "c", "nvidia-smi"}, "docker exec"},
      {{"docker", "compose", "-f", "a.yml", "up", "-d"}, "docker compose"},
      {{"docker", "buildx", "build", "."}, "docker build"},
      {{"docker", "start", "c"}, "docker start"},
      {{"docker-compose", "up"}, "docker-compose up"},
      {{"nvidia-docker", "run", "x"}, "nvidia-docker run"},
      {{"nerdctl", "-n", "k8s.io", "run", "x"}, "nerdctl run"},
      {{"podman", "--cgroup-manager", "cgroupfs", "run", "x"}, "podman run"},
      {{"podman-compose", "up"}, "podman-compose up"},
      {{"buildah", "bud", "."}, "buildah bud"},
      {{"apptainer", "exec", "--nv", "a.sif", "python3"}, "apptainer exec"},
      {{"singularity", "-d", "run", "a.sif"}, "singularity run"},
      {{"enroot", "start", "x"}, "enroot start"},
      {{"ch-run", "img", "--", "x"}, "ch-run"},
      {{"bwrap", "--bind", "/", "/", "x"}, "bwrap"},
      {{"ctr", "-n", "a", "run", "--gpus", "0", "i", "c"}, "ctr run"},
      {{"crictl", "exec", "c", "x"}, "crictl exec"},
      {{"kubectl", "-n", "ml", "apply", "-f", "a.yaml"}, "kubectl apply"},
      {{"oc", "rsh", "pod"}, "oc rsh"},
      {{"helm", "install", "a", "b"}, "helm install"},
      {{"lxc", "exec", "c", "--", "x"}, "lxc exec"},
      {{"incus", "launch", "a"}, "incus launch"},
      {{"lxc-attach", "-n", "c"}, "lxc-attach"},
      {{"srun", "-N1", "python3", "a.py"}, "srun"},
      {{"salloc"}, "salloc"},
      {{"sbatch", "a.sh"}, "sbatch"},
      {{"qsub", "a.sh"}, "qsub"},
      {{"bsub", "a.sh"}, "bsub"},
      {{"ssh", "host", "docker", "run"}, "ssh"},
      {{"systemd-run", "--user", "x"}, "systemd-run"},
      {{"at", "now"}, "at"},
      {{"batch"}, "batch"},
      {{"tmux"}, "tmux"},
      {{"tmux", "new-session", "-d", "x"}, "tmux new-session"}};
  for (const auto& [argv, title] : cases) EXPECT_EQ(found(argv), title) << join(argv, " ");
}

TEST(agents, what_starts_nothing_needs_no_word) {
  const Words cases[] = {{"docker", "ps"},
                         {"docker", "logs", "run"},
                         {"docker", "image", "ls"},
                         {"docker", "compose", "logs"},
                         {"docker", "--version"},
                         {"docker"},
                         {"podman", "images"},
                         {"apptainer", "pull", "a"},
                         {"kubectl", "get", "pods"},
                         {"tmux", "ls"},
                         {"lxc", "list"}};
  for (const Words& argv : cases) EXPECT_EQ(found(argv), "") << join(argv, " ");
}

TEST(agents, one_that_is_asked_for_its_help_or_version_starts_nothing) {
  for (const Words& argv : {Words{"srun", "--version"}, Words{"sbatch", "--help"},
                            Words{"ssh", "-V"}, Words{"docker", "run", "--help"}})
    EXPECT_EQ(found(argv), "") << join(argv, " ");
  EXPECT_EQ(found({"ssh", "host", "--help"}), "ssh");
  EXPECT_EQ(found({"srun", "--version", "x"}), "srun");
  EXPECT_EQ(found({"docker", "run", "x", "--help"}), "docker run");
}

TEST(agents, a_word_that_is_no_command_is_none) {
  const Words cases[] = {{"grep", "docker", "run"},
                         {"echo", "ssh"},
                         {"python3", "docker", "run"},
                         {"cat", "/usr/bin/docker"},
                         {"sh", "-c", "echo docker run"},
                         {"bash", "docker", "run"},
                         {}};
  for (const Words& argv : cases) EXPECT_EQ(found(argv), "") << join(argv, " ");
}

TEST(agents, they_are_found_behind_wrappers_and_in_shells) {
  EXPECT_EQ(found({"sudo", "/usr/bin/docker", "run", "x"}), "docker run");
  EXPECT_EQ(found({"env", "X=1", "docker", "run"}), "docker run");
  EXPECT_EQ(found({"sh", "-c", "cd x && docker run a; ssh host b"}), "docker run; ssh");
  EXPECT_EQ(found({"sh", "-c", "docker run a; docker run a; docker run b"}),
            "docker run; docker run");
}

}  // namespace
}  // namespace corral::isolate

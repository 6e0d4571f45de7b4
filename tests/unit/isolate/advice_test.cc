// SPDX-License-Identifier: Apache-2.0
// What is said before the job starts: who leaves, who fails, what is asked for and what to type.
#include "isolate/advice.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "base/text.h"
#include "isolate/command_words.h"
#include "made_up_hosts.h"

namespace corral::isolate {
namespace {

const std::vector<CdiDevice> kCdi = {{"nvidia.com/gpu=0", {"/dev/nvidia0"}},
                                     {"nvidia.com/gpu=1", {"/dev/nvidia1"}},
                                     {"nvidia.com/gpu=all", {"/dev/nvidia0", "/dev/nvidia1"}}};

enum class As { root, user, user_of_root };

struct Case {
  Words command;
  std::vector<Method> methods = {Method::automatic};
  As as = As::root;
  bool with_cdi = true;
  std::vector<unsigned> given = {1};
};

Plan advised(const Case& c, const host::Variables& variables = {}) {
  Request request = two_gpus_give_1();
  request.command = c.command;
  request.methods = c.methods;
  request.allowed.gpus = c.given;
  Host host = c.as == As::user ? user_host(request) : root_host(request);
  if (c.as == As::user_of_root) host.root = false;
  if (c.with_cdi) host.cdi = kCdi;
  host.variables = variables;
  Plan plan = planned(request, host);
  add_advice(plan, request, host);
  return plan;
}

// The one piece of advice, "what | instead"; empty: none.
std::string said(const Case& c, const host::Variables& variables = {}) {
  std::string text;
  for (const Advice& advice : advised(c, variables).advice)
    text += (text.empty() ? "" : " || ") + advice.what + " | " + advice.instead;
  return text;
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

TEST(advice, an_ordinary_command_gets_none) {
  EXPECT_EQ(said({.command = {"python3", "train.py"}}), "");
  EXPECT_EQ(said({.command = {"grep", "docker", "run"}}), "");
  EXPECT_EQ(said({.command = {}}), "");
}

TEST(advice, docker_leaves_whatever_the_method_is) {
  for (const Method method : {Method::cgroup, Method::landlock, Method::mount, Method::env}) {
    const Plan plan = advised({.command = {"docker", "run", "image"}, .methods = {method}});
    ASSERT_EQ(plan.advice.size(), 1U);
    EXPECT_TRUE(plan.advice[0].leaves);
    EXPECT_TRUE(says(plan.not_covered, "\"docker run\" has the docker daemon start the container"));
  }
}

TEST(advice, each_form_of_asking_docker_is_held_against_the_selection) {
  const std::string outside = "asks for GPU 0, this run was given GPU 1 | ";
  const std::string form = "docker run --gpus '\"device=GPU-1aaa\"' …";
  struct Form {
    Words options;
    std::string asked;
    std::string instead;
  };
  const Form forms[] = {
      {{"--gpus", "all"}, "--gpus all asks for every GPU, this run was given GPU 1", form},
      {{"--gpus", "1"}, "--gpus 1 (a count) " + outside, form},
      {{"--gpus", "2"}, "asks for GPU 0 and GPU 1, this run was given GPU 1", form},
      {{"--gpus", "device=0"}, "--gpus device=0 " + outside, form},
      {{"--gpus", "\"device=0,1\""}, "asks for GPU 0 and GPU 1, this run", form},
      {{"--gpus", "device=0,1"},
       "it will be refused, for in --gpus device=0,1 a list of devices needs double quotes",
       form},
      {{"--gpus", "device=GPU-0aaa"}, outside, form},
      {{"--gpus", "device=1"}, "--gpus device=1 asks for GPU 1, as given", ""},
      {{"--gpus", "\"device=GPU-1aaa\""}, "asks for GPU 1, as given", ""},
      {{"--gpus", "device=$GPU"}, "is not known here, this run was given GPU 1", form},
      {{"--gpus", "device=7"}, "is not known here", form},
      {{"--device", "nvidia.com/gpu=all"},
       "asks for every GPU",
       "docker run --device nvidia.com/gpu=1 …"},
      {{"--device", "nvidia.com/gpu=0"}, outside, "docker run --device nvidia.com/gpu=1 …"},
      {{"--device=nvidia.com/gpu=1"}, "asks for GPU 1, as given", ""},
      {{"--device", "nvidia.com/gpu=GPU-0aaa"}, outside, "docker run --device nvidia.com/gpu=1 …"},
      {{"--device", "nvidia.com/gpu=9"}, "is not known here", "docker run --device"},
      {{"--device", "/dev/nvidia0"}, "--device /dev/nvidia0 " + outside, form},
      {{"--device", "/dev/nvidia1:/dev/nvidia1"}, "asks for GPU 1, as given", ""},
      {{"--device", "/dev/fuse"}, "nor watched | ", form},
      {{"--runtime", "nvidia", "-e", "NVIDIA_VISIBLE_DEVICES=0"},
       outside,
       "docker run --runtime nvidia -e NVIDIA_VISIBLE_DEVICES=GPU-1aaa …"},
      {{"--runtime=nvidia", "-e", "NVIDIA_VISIBLE_DEVICES=all"},
       "asks for every GPU",
       "docker run --runtime nvidia"},
      {{"-e", "NVIDIA_VISIBLE_DEVICES=GPU-1aaa"}, "as given", ""},
      {{"-e", "NVIDIA_VISIBLE_DEVICES"}, "is passed on, as given", ""},
      {{"--privileged"}, "--privileged asks for every GPU", form + ", without --privileged"},
      {{"--gpus", "device=1", "--privileged"}, "every GPU", form + ", without --privileged"},
      {{"-v", "/dev:/dev"}, "-v /dev asks for every GPU", form + ", without -v /dev"},
      {{"--from-the-future"}, "was not read to the end", form},
      {{}, "nor watched | ", form}};
  for (const Form& f : forms) {
    Words command = {"docker", "run"};
    command.insert(command.end(), f.options.begin(), f.options.end());
    command.emplace_back("image");
    const std::string text = said({.command = command});
    EXPECT_TRUE(has(text, f.asked)) << join(command, " ") << "\n" << text;
    EXPECT_TRUE(f.instead.empty() ? text.ends_with(" | ") : has(text, " | " + f.instead))
        << join(command, " ") << "\n"
        << text;
  }
}

TEST(advice, several_gpus_stand_in_one_pair_of_quotes) {
  EXPECT_TRUE(has(said({.command = {"docker", "run", "i"}, .given = {0, 1}}),
                  "--gpus '\"device=GPU-0aaa,GPU-1aaa\"' …"));
}

TEST(advice, a_job_without_gpus_gets_a_container_without_gpus) {
  const std::string text = said({.command = {"docker", "run", "--gpus", "all", "i"}, .given = {}});
  EXPECT_TRUE(has(text, "asks for every GPU, this run was given no GPU"));
  EXPECT_TRUE(has(text, "docker run -e NVIDIA_VISIBLE_DEVICES=void …, without --gpus"));
}

TEST(advice, numbers_prove_nothing_where_gpus_are_closed_to_us) {
  Request request = two_gpus_give_1();
  request.inventory.hidden = {gpu(2)};
  request.command = {"docker", "run", "--gpus", "device=1", "i"};
  const Host host = root_host(request);
  const auto advice = advise_on_command(request, host, planned(request, host));
  ASSERT_EQ(advice.size(), 1U);
  EXPECT_TRUE(has(advice[0].what, "is not known here"));
  request.command = {"docker", "run", "--gpus", "device=GPU-2aaa", "i"};
  EXPECT_TRUE(has(advise_on_command(request, host, planned(request, host)).at(0).what,
                  "asks for the closed GPU GPU-2aaa"));
}

TEST(advice, mig_instances_are_told_apart) {
  Request request = two_gpus_give_1();
  request.inventory.gpus[1].mig.resize(2);
  request.inventory.gpus[1].mig[0].uuid = "MIG-aaaa";
  request.inventory.gpus[1].mig[1].uuid = "MIG-bbbb";
  request.allowed.mig = {{.gpu = 1, .instance = 0}};
  const Host host = root_host(request);
  const auto what = [&](std::string_view device) {
    request.command = {"docker", "run", "--gpus", "device=" + std::string(device), "i"};
    return advise_on_command(request, host, planned(request, host)).at(0).what;
  };
  EXPECT_TRUE(has(what("MIG-aaaa"), "asks for MIG-aaaa, as given"));
  EXPECT_TRUE(has(what("MIG-bbbb"), "asks for MIG-bbbb, this run was given GPU 1 (MIG-aaaa)"));
  EXPECT_TRUE(has(what("1"), "asks for GPU 1, this run was given GPU 1 (MIG-aaaa)"));
}

TEST(advice, without_a_selection_nothing_is_held_against_it) {
  Request request = two_gpus_give_1();
  request.allowed = {};
  request.command = {"docker", "run", "--gpus", "all", "i"};
  const Host host = root_host(request);
  const auto advice = advise_on_command(request, host, planned(request, host));
  ASSERT_EQ(advice.size(), 1U);
  EXPECT_TRUE(advice[0].what.ends_with("neither confined nor watched"));
  EXPECT_EQ(advice[0].instead, "");
}

TEST(advice, another_hosts_docker_is_not_judged) {
  const Words all = {"docker", "run", "--gpus", "all", "i"};
  EXPECT_TRUE(
      has(said({.command = all}, {{"DOCKER_HOST", "ssh://gpu2"}}), "works on another host"));
  EXPECT_FALSE(
      has(said({.command = all}, {{"DOCKER_HOST", "unix:///run/docker.sock"}}), "another"));
  EXPECT_TRUE(has(said({.command = all}, {{"DOCKER_CONTEXT", "gpu2"}}), "works on another host"));
  EXPECT_TRUE(has(said({.command = {"docker", "-H", "tcp://gpu2:1", "run", "i"}}), "another host"));
}

TEST(advice, a_compose_file_is_not_read_and_the_container_of_exec_has_its_gpus) {
  const std::string compose = said({.command = {"docker", "compose", "up"}});
  EXPECT_TRUE(has(compose, "the file was not read"));
  EXPECT_TRUE(has(compose, "device_ids: [\"GPU-1aaa\"]"));
  EXPECT_TRUE(has(said({.command = {"docker", "exec", "c", "x"}}), "the container"));
}

TEST(advice, podman_fails_under_landlock_and_in_a_user_namespace) {
  const Words run = {"podman", "run", "i"};
  for (const As as : {As::root, As::user}) {
    const Plan plan = advised({.command = run, .methods = {Method::landlock}, .as = as});
    ASSERT_EQ(plan.advice.size(), 1U);
    EXPECT_TRUE(has(plan.advice[0].what, "Landlock refuses the mounts"));
    EXPECT_FALSE(plan.advice[0].leaves);
    EXPECT_EQ(plan.advice[0].instead,
              as == As::root
                  ? "corral run --enforce mount …: what it covers is covered in the container too"
                  : "without corral before it: podman run --device nvidia.com/gpu=1 …");
  }
  EXPECT_TRUE(has(said({.command = run, .methods = {Method::mount}, .as = As::user}),
                  "a user namespace around it"));
}

TEST(advice, roots_podman_leaves_a_cgroup_and_keeps_mounts) {
  const Words all = {"podman", "run", "--device", "nvidia.com/gpu=all", "i"};
  const Plan leaves = advised({.command = all, .methods = {Method::cgroup}});
  EXPECT_TRUE(leaves.advice.at(0).leaves);
  EXPECT_TRUE(has(leaves.advice[0].what, "to a cgroup outside of this run"));
  EXPECT_EQ(leaves.advice[0].instead, "podman run --device nvidia.com/gpu=1 …");
  const Plan keeps = advised({.command = all, .methods = {Method::mount}});
  EXPECT_FALSE(keeps.advice.at(0).leaves);
  EXPECT_TRUE(has(keeps.advice[0].what, "keeps the mounts"));
  EXPECT_EQ(said({.command = {"podman", "run", "i"}, .methods = {Method::mount}}), "");
}

TEST(advice, a_users_podman_stays_unless_systemd_moves_it) {
  const std::string text = said(
      {.command = {"podman", "run", "i"}, .methods = {Method::cgroup}, .as = As::user_of_root});
  EXPECT_TRUE(has(text, "unless systemd is its cgroup manager"));
  EXPECT_TRUE(has(text, "podman --cgroup-manager cgroupfs run …"));
}

TEST(advice, without_a_cdi_file_none_is_made_up) {
  const std::string text =
      said({.command = {"podman", "run", "--device", "nvidia.com/gpu=all", "i"},
            .methods = {Method::cgroup},
            .with_cdi = false});
  EXPECT_TRUE(has(text, "no CDI file here names the GPU: nvidia-ctk cdi generate"));
}

TEST(advice, apptainer_stays_inside_and_fails_under_landlock) {
  const Words run = {"apptainer", "exec", "--nv", "a.sif", "python3"};
  EXPECT_EQ(said({.command = run, .methods = {Method::cgroup}}), "");
  EXPECT_EQ(said({.command = run, .methods = {Method::mount}}), "");
  EXPECT_TRUE(has(said({.command = run, .methods = {Method::landlock}}), "--enforce mount"));
}

TEST(advice, corral_belongs_behind_what_hands_out_work) {
  EXPECT_TRUE(
      has(said({.command = {"srun", "-n2", "x"}}), "srun … corral run --gpus all -- PROGRAM"));
  EXPECT_TRUE(has(said({.command = {"salloc", "bash"}}), "what srun starts in it is outside"));
  EXPECT_TRUE(has(said({.command = {"sbatch", "x"}}), "in the script: corral run --gpus all"));
  EXPECT_TRUE(has(said({.command = {"ssh", "h", "x"}}), "ssh HOST corral run"));
  EXPECT_TRUE(has(said({.command = {"systemd-run", "x"}}),
                  "systemd-run … corral run --gpus GPU-1aaa -- CMD"));
  EXPECT_TRUE(
      has(said({.command = {"at", "now"}}), "echo 'corral run --gpus GPU-1aaa -- CMD' | at"));
  EXPECT_TRUE(has(said({.command = {"tmux"}}), "in tmux: corral run --gpus GPU-1aaa -- CMD"));
  EXPECT_TRUE(has(said({.command = {"kubectl", "apply", "x"}}), "nvidia.com/gpu: N"));
  EXPECT_TRUE(has(said({.command = {"ctr", "run", "i", "c"}}), "ctr run --gpus 1 …"));
  EXPECT_TRUE(has(said({.command = {"crictl", "exec", "c"}}), "the container runtime"));
  EXPECT_TRUE(has(said({.command = {"lxc", "exec", "c", "x"}}),
                  "lxc config device add CONTAINER gpu1 gpu pci="));
}

TEST(advice, a_scope_of_systemd_leaves_the_cgroup_and_nothing_else) {
  const Words run = {"systemd-run", "--scope", "x"};
  EXPECT_TRUE(has(said({.command = run, .methods = {Method::cgroup}}), "out of the cgroup"));
  EXPECT_EQ(said({.command = run, .methods = {Method::landlock}, .as = As::user}), "");
}

TEST(advice, the_same_is_said_once_and_different_things_each) {
  EXPECT_EQ(advised({.command = {"sh", "-c", "ssh a x; ssh b y; docker run i"}}).advice.size(), 2U);
}

Plan in_slurm(const std::string& given, unsigned selected, bool probed = true) {
  Request request = two_gpus_give_1();
  request.allowed.gpus = {selected};
  for (gpu::Gpu& gpu : request.inventory.gpus)
    if (probed) gpu.accessible = true;
  Host host = root_host(request);
  host.surroundings = {{.kind = host::Surrounding::Kind::slurm,
                        .name = "Slurm job 7",
                        .evidence = "SLURM_JOB_ID",
                        .in_its_cgroup = true}};
  host.variables = {{"SLURM_JOB_GPUS", given}};
  Plan plan = planned(request, host);
  add_advice(plan, request, host);
  return plan;
}

TEST(advice, a_selection_outside_of_the_schedulers_is_a_warning_and_no_accusation) {
  const Plan other = in_slurm("1", 0);
  ASSERT_EQ(other.advice.size(), 1U);
  EXPECT_EQ(other.advice[0].what,
            "GPU 0 is perhaps another job's: Slurm job 7 was given SLURM_JOB_GPUS=1, which mostly "
            "are the N of /dev/nvidiaN");
  EXPECT_TRUE(has(other.advice[0].instead, "scontrol show job -d"));
  EXPECT_FALSE(other.advice[0].leaves);
  EXPECT_TRUE(in_slurm("1", 1).advice.empty());
  EXPECT_TRUE(in_slurm("0,1", 0).advice.empty());
  EXPECT_TRUE(in_slurm("5", 0).advice.empty()) << "no such minor: the numbers count something else";
  EXPECT_TRUE(in_slurm("1", 0, false).advice.empty());
}

TEST(advice, a_selection_outside_of_the_containers_uuids_is_certain) {
  Request request = two_gpus_give_1();
  for (gpu::Gpu& gpu : request.inventory.gpus) gpu.accessible = true;
  Host host = root_host(request);
  host.surroundings = {{.kind = host::Surrounding::Kind::docker,
                        .name = "docker container 0f3a",
                        .evidence = "/.dockerenv"}};
  host.variables = {{"NVIDIA_VISIBLE_DEVICES", "GPU-0aaa"}};
  Plan plan = planned(request, host);
  add_advice(plan, request, host);
  ASSERT_EQ(plan.advice.size(), 1U);
  EXPECT_EQ(plan.advice[0].what,
            "GPU 1 was not given to docker container 0f3a (NVIDIA_VISIBLE_DEVICES=GPU-0aaa)");
}

TEST(advice, the_plan_shows_it_all_in_words_and_in_json) {
  Plan plan = in_slurm("1", 0);
  plan.advice.push_back({.what = "it leaves", .instead = "type this", .leaves = true});
  const std::string text = describe(plan);
  EXPECT_TRUE(has(text, "around us\n  in Slurm job 7 (SLURM_JOB_ID), given 1 GPU"));
  EXPECT_TRUE(has(text, "advice\n  GPU 0 is perhaps another job's"));
  EXPECT_TRUE(has(text, "  instead: type this\n"));
  const nlohmann::json json = to_json(plan);
  EXPECT_EQ(json["around"][0]["kind"], "slurm");
  EXPECT_EQ(json["around"][0]["held"], false);
  EXPECT_EQ(json["around"][0]["given_count"], 1);
  EXPECT_EQ(json["around"][0]["given_by"], "SLURM_JOB_GPUS=1");
  EXPECT_EQ(json["advice"][1]["instead"], "type this");
}

TEST(advice, any_command_is_good) {
  constexpr std::string_view kParts[] = {"docker",
                                         "run",
                                         "--gpus",
                                         "device=0",
                                         "\"device=0,1\"",
                                         "all",
                                         "-e",
                                         "NVIDIA_VISIBLE_DEVICES=",
                                         "podman",
                                         "sudo",
                                         "sh",
                                         "-c",
                                         "docker run --gpus '\"",
                                         "",
                                         "--",
                                         "nvidia.com/gpu=",
                                         "srun",
                                         "env",
                                         "--device",
                                         "compose",
                                         "up",
                                         "\xff\x1b[31m",
                                         "systemd-run",
                                         "--scope",
                                         "lxc",
                                         "ctr"};
  std::mt19937 random(4);
  for (int i = 0; i < 5000; ++i) {
    Words command;
    for (auto n = random() % 8; n > 0; --n)
      command.emplace_back(kParts[random() % std::size(kParts)]);
    const Method method =
        std::vector{Method::cgroup, Method::landlock, Method::mount}[random() % 3];
    for (const Advice& advice : advised({.command = command, .methods = {method}}).advice) {
      EXPECT_FALSE(advice.what.empty());
      EXPECT_EQ(advice.what.find('\x1b'), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace corral::isolate

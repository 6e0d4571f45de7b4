// SPDX-License-Identifier: Apache-2.0
// Each engine and batch system by what it leaves, and machines that only look like a container.
#include "host/surroundings.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "fixture_host.h"

namespace corral::host {
namespace {

using Kind = Surrounding::Kind;
using tests::MadeHost;

constexpr std::string_view kId = "0f3a5b7c9d1e0f3a5b7c9d1e0f3a5b7c9d1e0f3a5b7c9d1e0f3a5b7c9d1e0f3a";
constexpr std::string_view kDefaultSet = "CapBnd:\t00000000a80425fb\n";
constexpr std::string_view kFullSet = "CapBnd:\t000001ffffffffff\n";

void give_namespaces(const MadeHost& host, bool first) {
  host.write("/proc/self/ns/.keep", "");
  const std::pair<std::string, std::string> all[] = {
      {"pid", "4026531836"}, {"uts", "4026531838"}, {"ipc", "4026531839"}};
  for (const auto& [name, number] : all)
    std::filesystem::create_symlink(name + ":[" + (first ? number : "4026532500") + "]",
                                    host.root().path("/proc/self/ns/" + name));
}

std::vector<Surrounding> found(const MadeHost& host, const Variables& variables = {}) {
  return find_surroundings(host.root(), variables);
}

// The one surrounding, or what else there is.
std::string name_of(const std::vector<Surrounding>& all) {
  std::string text;
  for (const Surrounding& one : all)
    text += (text.empty() ? "" : " | ") + one.name + " by " + one.evidence;
  return text;
}

std::string group_line(std::string_view path) { return "0::" + std::string(path) + "\n"; }

TEST(surroundings, a_plain_host_has_none) {
  const MadeHost host;
  host.write("/proc/self/cgroup", "0::/user.slice/user-1000.slice/session-2.scope\n");
  EXPECT_TRUE(found(host).empty());
}

TEST(surroundings, a_host_of_which_nothing_can_be_read_has_none) {
  const MadeHost host;
  EXPECT_TRUE(found(host).empty());
}

TEST(surroundings, docker_is_known_by_the_files_that_it_mounts) {
  const MadeHost host;
  const std::string root = "/var/lib/docker/containers/" + std::string(kId) + "/hostname";
  host.write("/proc/self/cgroup", "0::/\n");
  host.write("/proc/self/mountinfo",
             "500 499 8:1 " + root + " /etc/hostname rw - ext4 /dev/sda1 rw\n");
  const auto all = found(host);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].kind, Kind::docker);
  EXPECT_EQ(all[0].name, "docker container 0f3a5b7c9d1e");
  EXPECT_NE(all[0].evidence.find("/etc/hostname is mounted from"), std::string::npos);
}

TEST(surroundings, docker_is_known_by_its_cgroup) {
  for (const std::string& path :
       {"/docker/" + std::string(kId), "/system.slice/docker-" + std::string(kId) + ".scope"}) {
    const MadeHost host;
    host.write("/proc/self/cgroup", group_line(path));
    EXPECT_EQ(name_of(found(host)), "docker container 0f3a5b7c9d1e by cgroup " + path);
  }
}

TEST(surroundings, the_service_of_docker_is_not_a_container) {
  const MadeHost host;
  host.write("/proc/self/cgroup", "0::/system.slice/docker.service\n");
  EXPECT_TRUE(found(host).empty());
}

// A machine whose root was an image once.
TEST(surroundings, dockerenv_is_no_evidence_in_the_hosts_own_namespaces) {
  const MadeHost host;
  host.write("/.dockerenv", "");
  give_namespaces(host, true);
  EXPECT_TRUE(found(host).empty());
}

TEST(surroundings, dockerenv_is_evidence_in_namespaces_of_its_own) {
  const MadeHost host;
  host.write("/.dockerenv", "");
  give_namespaces(host, false);
  EXPECT_EQ(name_of(found(host)), "docker container by /.dockerenv");
}

TEST(surroundings, privileged_is_read_from_the_bounding_set) {
  for (const bool full : {false, true}) {
    const MadeHost host;
    host.write("/.dockerenv", "");
    host.write("/proc/self/status", full ? kFullSet : kDefaultSet);
    const auto all = found(host);
    ASSERT_EQ(all.size(), 1U);
    EXPECT_EQ(all[0].privileged, full);
  }
}

TEST(surroundings, podman_names_its_container) {
  const MadeHost host;
  host.write("/run/.containerenv", "engine=\"podman-4.3.1\"\nname=\"train\"\nid=\"0f3a\"\n");
  EXPECT_EQ(name_of(found(host)), "podman container train by /run/.containerenv");
}

TEST(surroundings, podman_without_words_is_podman_too) {
  const MadeHost host;
  host.write("/run/.containerenv", "");
  EXPECT_EQ(name_of(found(host)), "podman container by /run/.containerenv");
}

TEST(surroundings, podman_is_known_by_its_cgroup) {
  const MadeHost host;
  const std::string path = "/user.slice/libpod-" + std::string(kId) + ".scope/container";
  host.write("/proc/self/cgroup", group_line(path));
  EXPECT_EQ(name_of(found(host)), "podman container 0f3a5b7c9d1e by cgroup " + path);
}

TEST(surroundings, a_pod_is_kubernetes_and_not_containerd) {
  const MadeHost host;
  const std::string path =
      "/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + std::string(kId) + ".scope";
  host.write("/proc/self/cgroup", group_line(path));
  const auto all = found(host, {{"HOSTNAME", "train-0"}});
  EXPECT_EQ(name_of(all), "Kubernetes pod train-0 by cgroup " + path);
  EXPECT_EQ(all[0].kind, Kind::kubernetes);
}

TEST(surroundings, a_pod_is_known_by_its_account_and_by_the_service_variable) {
  const MadeHost with_account;
  with_account.write("/run/secrets/kubernetes.io/serviceaccount/token", "x");
  EXPECT_EQ(name_of(found(with_account)), "Kubernetes pod by /run/secrets/kubernetes.io");
  const MadeHost with_variable;
  EXPECT_EQ(name_of(found(with_variable, {{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}})),
            "Kubernetes pod by KUBERNETES_SERVICE_HOST");
}

TEST(surroundings, a_variable_that_was_taken_along_to_the_host_makes_no_pod) {
  const MadeHost host;
  give_namespaces(host, true);
  EXPECT_TRUE(found(host, {{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}, {"container", "oci"}}).empty());
}

TEST(surroundings, nerdctl_is_containerd) {
  const MadeHost host;
  const std::string root =
      "/var/lib/nerdctl/1935/containers/default/" + std::string(kId) + "/hostname";
  host.write("/proc/self/mountinfo", "5 4 8:1 " + root + " /etc/hostname rw - ext4 /dev/sda1 rw\n");
  EXPECT_EQ(found(host).at(0).name, "containerd container 0f3a5b7c9d1e");
}

TEST(surroundings, lxc_is_known_by_its_cgroup_and_its_socket) {
  const MadeHost by_group;
  by_group.write("/proc/self/cgroup", "0::/lxc.payload.gpu1/init.scope\n");
  EXPECT_EQ(found(by_group).at(0).kind, Kind::lxc);
  const MadeHost by_socket;
  by_socket.write("/dev/lxd/sock", "");
  EXPECT_EQ(found(by_socket).at(0).kind, Kind::lxc);
}

TEST(surroundings, systemd_knows_the_name_of_its_container) {
  const std::tuple<const char*, Kind, const char*> names[] = {
      {"systemd-nspawn\n", Kind::nspawn, "systemd-nspawn container"},
      {"lxc", Kind::lxc, "LXC container"},
      {"rkt", Kind::other_container, "container"}};
  for (const auto& [text, kind, name] : names) {
    const MadeHost host;
    host.write("/run/systemd/container", text);
    const auto all = found(host);
    ASSERT_EQ(all.size(), 1U) << text;
    EXPECT_EQ(all[0].kind, kind);
    EXPECT_EQ(all[0].name, name);
  }
}

TEST(surroundings, apptainer_is_known_by_its_variable_and_its_folder) {
  const MadeHost host;
  EXPECT_EQ(name_of(found(host, {{"APPTAINER_CONTAINER", "/images/torch.sif"}})),
            "Apptainer container /images/torch.sif by APPTAINER_CONTAINER");
  host.write("/.singularity.d/env/01.sh", "");
  EXPECT_EQ(name_of(found(host)), "Apptainer container by /.singularity.d");
}

TEST(surroundings, a_slurm_job_is_in_its_cgroup_or_only_in_the_variables) {
  struct Case {
    const char* path;
    bool inside;
  };
  const Case cases[] = {{"/slurm/uid_1000/job_4711/step_0/task_0", true},
                        {"/system.slice/slurmstepd.scope/job_4711", true},
                        {"/system.slice/slurmstepd.scope/job_47110/step_0", false},
                        {"/user.slice/job_4711", false},
                        {"/user.slice/user-1000.slice/session-2.scope", false}};
  for (const Case& c : cases) {
    const MadeHost host;
    host.write("/proc/self/cgroup", group_line(c.path));
    const auto all = found(host, {{"SLURM_JOB_ID", "4711"}});
    ASSERT_EQ(all.size(), 1U);
    EXPECT_EQ(all[0].name, "Slurm job 4711");
    EXPECT_EQ(all[0].in_its_cgroup, c.inside) << c.path;
  }
}

TEST(surroundings, a_container_in_a_batch_job_is_both) {
  const MadeHost host;
  const auto all = found(host, {{"APPTAINER_CONTAINER", "a.sif"}, {"SLURM_JOB_ID", "7"}});
  EXPECT_EQ(name_of(all),
            "Apptainer container a.sif by APPTAINER_CONTAINER | Slurm job 7 by SLURM_JOB_ID");
}

TEST(surroundings, pbs_and_lsf_are_known_by_their_job_numbers) {
  const MadeHost host;
  EXPECT_EQ(found(host, {{"PBS_JOBID", "12.head"}}).at(0).name, "PBS job 12.head");
  EXPECT_EQ(found(host, {{"LSB_JOBID", "99"}}).at(0).name, "LSF job 99");
}

TEST(surroundings, variables_are_split_at_the_first_equals_sign) {
  const char* entries[] = {"A=1=2", "broken", "B=", "A=3", nullptr};
  const Variables variables = read_variables(entries);
  EXPECT_EQ(variables, (Variables{{"A", "1=2"}, {"B", ""}}));
  EXPECT_EQ(find_variable(variables, "B"), "");
  EXPECT_FALSE(find_variable(variables, "C"));
}

}  // namespace
}  // namespace corral::host

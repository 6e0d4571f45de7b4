// SPDX-License-Identifier: Apache-2.0
// Which nodes a plan refuses: second names, device numbers, MIG instances, further nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "made_up_hosts.h"

namespace corral::isolate {
namespace {

TEST(plan, drm_nodes_without_a_gpu_are_named) {
  Request request = two_gpus_give_1();
  request.inventory.gpus[0].drm_nodes.clear();
  Host host = root_host(request);
  host.unmatched_drm = {"/dev/dri/renderD128"};
  EXPECT_TRUE(says(planned(request, host).not_covered, "/dev/dri/renderD128"));
}

TEST(plan, second_names_are_refused_too) {
  Request request = two_gpus_give_1();
  Host host = user_host(request);
  host.refused[0].aliases = {{.path = "/srv/dev/nvidia0", .kind = Alias::Kind::mount},
                             {.path = "/srv/other", .kind = Alias::Kind::node}};
  const Plan plan = planned(request, host);
  ASSERT_EQ(plan.refused.size(), 4U);
  EXPECT_EQ(plan.refused[2].node.path, "/srv/dev/nvidia0");
  EXPECT_EQ(plan.refused[2].why, "second mount of /dev/nvidia0");
  EXPECT_EQ(plan.refused[3].why, "second node of /dev/nvidia0");
  EXPECT_TRUE(plan.refused[2].by_path);
  EXPECT_EQ(plan.refused[3].node.minor, 0U);
}

TEST(plan, a_second_name_below_tmp_is_not_worth_tmp) {
  Request request = two_gpus_give_1();
  Host user = user_host(request);
  user.refused[0].aliases = {
      {.path = "/tmp/x/nvidia0", .kind = Alias::Kind::node, .shared_folder = "/tmp"}};
  const Plan plan = planned(request, user);
  EXPECT_FALSE(plan.refused[2].by_path);
  EXPECT_TRUE(is_held(plan, plan.refused[0]));
  EXPECT_FALSE(is_held(plan, plan.refused[2]));
  EXPECT_EQ(to_json(plan).at("refused").size(), 2U);
  EXPECT_EQ(describe(plan).find("second node of"), std::string::npos);
  EXPECT_TRUE(says(plan.not_covered, "/tmp/x/nvidia0"));

  request.tight = true;
  EXPECT_NE(refusal(request, user).find("/tmp/x/nvidia0"), std::string::npos);

  Host root = root_host(request);
  root.refused[0].aliases = user.refused[0].aliases;
  const Plan tight = planned(request, root);
  EXPECT_FALSE(tight.refused[2].by_path);
  EXPECT_TRUE(is_held(tight, tight.refused[2]));  // the cgroup refuses the number
}

TEST(plan, landlock_does_not_take_tmp_away_for_a_node_in_it) {
  Request request;
  request.refuse_paths = {"/tmp/node"};
  Host user = user_host(request);
  user.refused[0].shared_folder = "/tmp";
  EXPECT_EQ(planned(request, user).enforced, "mount");
  user.mount_trouble = "user namespaces are switched off";
  EXPECT_NE(refusal(request, user).find("below /tmp"), std::string::npos);
  EXPECT_EQ(planned(request, root_host(request)).enforced, "cgroup");
}

TEST(plan, says_once_for_a_folder_where_the_job_cannot_make_files) {
  Request request;
  request.refuse_paths = {"/var/a/node0", "/var/a/node1", "/var/b/node2", "/srv/node3"};
  request.inventory.simulated = true;
  Host user = user_host(request);
  for (const std::size_t i : {0, 1, 2}) user.refused[i].shared_folder = "/var";
  user.refused[3].shared_folder = "/srv";
  EXPECT_THAT(planned(request, user).notes,
              testing::ElementsAre(
                  "the job cannot make files directly in /srv, above /srv/node3",
                  "the job cannot make files directly in /var, above /var/a/node0 and 2 more"));
}

TEST(plan, refuse_needs_a_node) {
  Request request;
  request.refuse_paths = {"/dev/nothing"};
  Host host = root_host(request);
  host.refused[0].node = {.path = "/dev/nothing"};
  EXPECT_NE(refusal(request, host).find("no device node of that name"), std::string::npos);
  host.refused[0].node = {.path = "/etc/passwd", .type = Node::Type::file};
  EXPECT_NE(refusal(request, host).find("regular file"), std::string::npos);
}

TEST(plan, refuse_alone_is_a_request) {
  Request request;
  request.refuse_paths = {"/dev/kvm", "/dev/kvm"};
  const Plan plan = planned(request, root_host(request));
  EXPECT_TRUE(plan.requested);
  EXPECT_EQ(paths(plan), (std::vector<std::string>{"/dev/kvm"}));
  EXPECT_TRUE(plan.environment.empty());
}

TEST(plan, refusing_what_is_given_is_an_error) {
  Request request = two_gpus_give_1();
  request.refuse_paths = {"/dev/nvidia1"};
  EXPECT_NE(refusal(request, root_host(request)).find("which --gpus gives"), std::string::npos);
}

TEST(plan, a_gpu_without_a_known_node_cannot_be_refused) {
  Request request = two_gpus_give_1();
  request.inventory.gpus[0].node.clear();
  EXPECT_NE(refusal(request, root_host(request)).find("GPU 0: its device node is not known"),
            std::string::npos);
}

TEST(plan, files_of_the_simulated_machine_need_landlock) {
  Request request = two_gpus_give_1();
  request.inventory.simulated = true;
  Host host = root_host(request);
  for (RefusedFact& f : host.refused) f.node.type = Node::Type::file;
  EXPECT_EQ(planned(request, host).enforced, "landlock+seccomp");
  request.tight = true;
  EXPECT_EQ(planned(request, host).enforced, "landlock+seccomp");
  request.tight = false;
  request.methods = {Method::cgroup};
  EXPECT_NE(refusal(request, host).find("simulated"), std::string::npos);
}

gpu::MigInstance mig(const std::string& uuid, std::vector<std::string> nodes) {
  gpu::MigInstance instance;
  instance.uuid = uuid;
  instance.capability_nodes = std::move(nodes);
  return instance;
}

TEST(plan, mig_instances_outside_the_selection_lose_their_capability) {
  Request request;
  request.inventory.gpus = {gpu(0)};
  // a and b are compute instances of one GPU instance and share its node.
  request.inventory.gpus[0].mig = {mig("MIG-a", {"/caps/gi1", "/caps/a"}),
                                   mig("MIG-b", {"/caps/gi1", "/caps/b"}),
                                   mig("MIG-c", {"/caps/gi2", "/caps/c"})};
  request.allowed.requested = true;
  request.allowed.gpus = {0};
  request.allowed.mig = {{.gpu = 0, .instance = 0}};
  const Plan plan = planned(request, root_host(request));
  EXPECT_EQ(paths(plan),
            (std::vector<std::string>{"/dev/dri/card0", "/caps/b", "/caps/gi2", "/caps/c"}));
  ASSERT_EQ(plan.allowed.size(), 3U);
  EXPECT_EQ(plan.allowed[1].path, "/caps/gi1");
  EXPECT_EQ(value_of(plan, "CUDA_VISIBLE_DEVICES"), "MIG-a");
  EXPECT_TRUE(says(plan.not_covered, "CAP_SYS_ADMIN"));
}

TEST(plan, all_instances_of_a_refused_gpu_are_refused) {
  Request request = two_gpus_give_1();
  request.inventory.gpus[0].mig = {mig("MIG-a", {"/caps/a"})};
  EXPECT_EQ(paths(planned(request, root_host(request))),
            (std::vector<std::string>{"/dev/nvidia0", "/dev/dri/card0", "/caps/a"}));
}

TEST(plan, a_missing_node_of_a_gpu_is_refused_by_its_number) {
  const Request request = two_gpus_give_1();
  const std::vector<Wanted> wanted = wanted_refusals(request);
  ASSERT_TRUE(wanted[0].known);
  EXPECT_EQ(wanted[0].known->major, 195U);
  EXPECT_EQ(wanted[0].known->minor, 0U);
  EXPECT_FALSE(wanted[1].known);
}

TEST(plan, a_gpu_that_is_closed_already_is_refused_again) {
  Request request = two_gpus_give_1();
  gpu::Gpu closed = gpu(4);
  closed.index = 1;  // it has no number: that of a given GPU must not spare it
  closed.pci.bus = 0x4e;
  closed.mig = {{.uuid = "MIG-a",
                 .profile = {},
                 .memory_bytes = {},
                 .capability_nodes = {"/dev/nvidia-caps/nvidia-cap30"}}};
  request.inventory.hidden = {closed};
  std::vector<std::string> whys;
  for (const Wanted& wanted : wanted_refusals(request))
    whys.push_back(wanted.path + ": " + wanted.why);
  EXPECT_EQ(whys,
            (std::vector<std::string>{"/dev/nvidia0: GPU 0", "/dev/dri/card0: DRM node of GPU 0",
                                      "/dev/nvidia4: the closed GPU at 0000:4e:00.0",
                                      "/dev/dri/card4: DRM node of the closed GPU at 0000:4e:00.0",
                                      "/dev/nvidia-caps/nvidia-cap30: capability of MIG-a"}));
  request.allowed.requested = false;
  EXPECT_TRUE(wanted_refusals(request).empty()) << "nothing was asked for";
}

}  // namespace
}  // namespace corral::isolate

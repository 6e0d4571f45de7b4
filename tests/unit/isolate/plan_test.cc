// SPDX-License-Identifier: Apache-2.0
// Planning by tables: what is refused, which layers are chosen, and what is said of it.
#include "isolate/plan.h"

#include <gtest/gtest.h>
#include <linux/bpf.h>

#include <nlohmann/json.hpp>

#include "made_up_hosts.h"

namespace corral::isolate {
namespace {

TEST(plan, refuses_the_nodes_of_gpus_outside_the_selection) {
  const Request request = two_gpus_give_1();
  const Plan plan = planned(request, root_host(request));
  EXPECT_EQ(paths(plan), (std::vector<std::string>{"/dev/nvidia0", "/dev/dri/card0"}));
  EXPECT_EQ(plan.refused[0].why, "GPU 0");
  ASSERT_EQ(plan.allowed.size(), 1U);
  EXPECT_EQ(plan.allowed[0].path, "/dev/nvidia1");
}

TEST(plan, gives_uuids_because_hidden_nodes_renumber_the_rest) {
  const Request request = two_gpus_give_1();
  const Plan plan = planned(request, root_host(request));
  EXPECT_EQ(value_of(plan, "CUDA_VISIBLE_DEVICES"), "GPU-1aaa");
  EXPECT_EQ(value_of(plan, "CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
  EXPECT_EQ(value_of(plan, "NVIDIA_VISIBLE_DEVICES"), "GPU-1aaa");
}

TEST(plan, none_refuses_all_and_shows_no_device) {
  Request request = two_gpus_give_1();
  request.allowed.gpus = {};
  const Plan plan = planned(request, root_host(request));
  EXPECT_EQ(paths(plan).size(), 4U);
  EXPECT_EQ(value_of(plan, "NVIDIA_VISIBLE_DEVICES"), "none");
  EXPECT_NE(value_of(plan, "CUDA_VISIBLE_DEVICES"), "");
}

TEST(plan, without_a_selection_nothing_is_refused_or_set) {
  Request request = two_gpus_give_1();
  request.allowed = {};
  const Plan plan = planned(request, root_host(request));
  EXPECT_TRUE(plan.refused.empty());
  EXPECT_TRUE(plan.layers.empty());
  EXPECT_TRUE(plan.environment.empty());
  EXPECT_FALSE(plan.requested);
  EXPECT_EQ(plan.enforced, "none");
}

TEST(plan, a_selection_of_all_has_nothing_to_refuse) {
  Request request = two_gpus_give_1();
  request.allowed.gpus = {0, 1};
  const Plan plan = planned(request, root_host(request));
  EXPECT_TRUE(plan.layers.empty());
  EXPECT_TRUE(plan.requested);
  EXPECT_EQ(value_of(plan, "CUDA_VISIBLE_DEVICES"), "GPU-0aaa,GPU-1aaa");
}

struct Choice {
  const char* name;
  std::vector<Method> methods;
  bool tight;
  bool root;
  const char* enforced;
  Layers layers;
};

TEST(plan, chooses_layers_by_method_and_rights) {
  const Layers cgroup = {Layer::cgroup2, Layer::landlock_scope};
  const Layers landlock = {Layer::landlock, Layer::seccomp};
  const Layers all = {Layer::cgroup2, Layer::landlock, Layer::seccomp};
  for (const Choice& choice : {
           Choice{"auto as root", {Method::automatic}, false, true, "cgroup", cgroup},
           Choice{"auto as user", {Method::automatic}, false, false, "landlock+seccomp", landlock},
           Choice{
               "landlock as root", {Method::landlock}, false, true, "landlock+seccomp", landlock},
           Choice{"cgroup as root", {Method::cgroup}, false, true, "cgroup", cgroup},
           Choice{"env", {Method::env}, false, true, "none", {}},
           Choice{"tight as root", {Method::automatic}, true, true, "cgroup+landlock+seccomp", all},
           Choice{"tight as user", {Method::automatic}, true, false, "landlock+seccomp", landlock},
           Choice{"tight landlock", {Method::landlock}, true, true, "landlock+seccomp", landlock},
           Choice{"mount as root",
                  {Method::mount},
                  false,
                  true,
                  "mount",
                  {Layer::mount, Layer::landlock_scope}},
           Choice{"mount as user", {Method::mount}, false, false, "mount", {Layer::mount}},
           Choice{"cgroup,landlock",
                  {Method::cgroup, Method::landlock},
                  false,
                  true,
                  "cgroup+landlock+seccomp",
                  all},
           Choice{"mount,landlock",
                  {Method::mount, Method::landlock},
                  false,
                  false,
                  "mount+landlock+seccomp",
                  {Layer::mount, Layer::landlock, Layer::seccomp}},
           Choice{"cgroup,mount",
                  {Method::cgroup, Method::mount},
                  false,
                  true,
                  "cgroup+mount",
                  {Layer::cgroup2, Layer::mount, Layer::landlock_scope}},
           Choice{"tight mount",
                  {Method::mount},
                  true,
                  false,
                  "mount+landlock+seccomp",
                  {Layer::mount, Layer::landlock, Layer::seccomp}},
       }) {
    Request request = two_gpus_give_1();
    request.methods = choice.methods;
    request.tight = choice.tight;
    const Plan plan = planned(request, choice.root ? root_host(request) : user_host(request));
    EXPECT_EQ(plan.enforced, choice.enforced) << choice.name;
    EXPECT_EQ(plan.layers, choice.layers) << choice.name;
  }
}

TEST(plan, capabilities_are_enough_for_a_cgroup) {
  const Request request = two_gpus_give_1();
  Host host = user_host(request);
  host.cap_bpf = host.cap_net_admin = true;
  host.cgroup2_trouble.clear();
  host.cgroup2->writable = true;
  const Plan plan = planned(request, host);
  EXPECT_EQ(plan.enforced, "cgroup");
  EXPECT_TRUE(plan.no_new_privs);  // the Landlock scope needs it without CAP_SYS_ADMIN
}

TEST(plan, the_default_as_root_keeps_setuid_programs_working) {
  Request request = two_gpus_give_1();
  EXPECT_FALSE(planned(request, root_host(request)).no_new_privs);
  request.tight = true;
  EXPECT_TRUE(planned(request, root_host(request)).no_new_privs);
  EXPECT_TRUE(planned(request, user_host(request)).no_new_privs);
}

TEST(plan, tight_as_root_closes_the_ways_out_of_the_cgroup) {
  Request request = two_gpus_give_1();
  request.tight = true;
  const Plan root = planned(request, root_host(request));
  EXPECT_TRUE(root.filter_cgroup_exits);
  EXPECT_EQ(root.read_only, (std::vector<std::string>{"/cg2", "/cg1"}));
  const Plan user = planned(request, user_host(request));
  EXPECT_FALSE(user.filter_cgroup_exits);
  EXPECT_TRUE(user.read_only.empty());
}

TEST(plan, root_does_not_write_to_cgroups_where_landlock_can_forbid_it) {
  Request request = two_gpus_give_1();
  request.methods = {Method::landlock};
  const Plan root = planned(request, root_host(request));
  EXPECT_EQ(root.read_only, (std::vector<std::string>{"/cg2", "/cg1"}));
  EXPECT_FALSE(root.filter_cgroup_exits);
  EXPECT_TRUE(planned(request, user_host(request)).read_only.empty());
  request.methods = {Method::cgroup};
  EXPECT_TRUE(planned(request, root_host(request)).read_only.empty());
}

TEST(plan, what_is_made_later_outside_is_a_limit_of_refusing_names) {
  const Request request = two_gpus_give_1();
  EXPECT_TRUE(says(planned(request, user_host(request)).general_limits, "after the start"));
  EXPECT_FALSE(says(planned(request, root_host(request)).general_limits, "after the start"));
}

TEST(plan, a_method_without_anything_to_refuse_is_an_error_not_a_silent_nothing) {
  for (const Method method : {Method::cgroup, Method::landlock, Method::mount, Method::automatic}) {
    Request request = two_gpus_give_1();
    request.allowed = {};
    request.methods = {method};
    request.tight = method == Method::automatic;
    const std::string text = refusal(request, root_host(request));
    const std::string name =
        request.tight ? "--tight" : "--enforce " + std::string(method_name(method));
    EXPECT_NE(text.find(name + ": there is nothing to refuse"), std::string::npos) << text;
    EXPECT_NE(text.find("--gpus"), std::string::npos) << text;
    EXPECT_NE(text.find("--refuse"), std::string::npos) << text;
    // A selection that leaves nothing to refuse has been asked for.
    request.allowed.requested = true;
    request.allowed.gpus = {0, 1};
    EXPECT_EQ(refusal(request, root_host(request)), "planned: none");
  }
  Request plain = two_gpus_give_1();
  plain.allowed = {};
  plain.methods = {Method::env};
  EXPECT_EQ(refusal(plain, root_host(plain)), "planned: none");
}

TEST(plan, what_holds_a_node_is_a_cgroup_its_name_or_what_is_there) {
  const RefusedNode by_name;
  const RefusedNode by_number{.node = {}, .why = {}, .by_path = false};
  const auto held = [](Layers layers, std::string enforced, const RefusedNode& node) {
    return is_held(Plan{.layers = std::move(layers), .enforced = std::move(enforced)}, node);
  };
  EXPECT_TRUE(held({Layer::landlock, Layer::seccomp}, "landlock+seccomp", by_name));
  EXPECT_FALSE(held({Layer::landlock, Layer::seccomp}, "landlock+seccomp", by_number));
  EXPECT_TRUE(held({Layer::cgroup1, Layer::landlock}, "cgroup+landlock", by_number));
  EXPECT_TRUE(held({Layer::cgroup2, Layer::landlock_scope}, "cgroup", by_number));
  EXPECT_TRUE(held({}, "existing", by_name));
  EXPECT_FALSE(held({}, "none", by_name));
}

TEST(plan, existing_confinement_is_left_alone_when_it_refuses_everything) {
  Request request = two_gpus_give_1();
  Host host = root_host(request);
  for (RefusedFact& f : host.refused) f.refused_now = true;
  const Plan plan = planned(request, host);
  EXPECT_EQ(plan.enforced, "existing");
  EXPECT_TRUE(plan.layers.empty());
  EXPECT_EQ(plan.refused.size(), 2U);  // the self-test still tries them

  host.refused[1].refused_now = std::nullopt;
  EXPECT_EQ(planned(request, host).enforced, "cgroup");
  host.refused[1].refused_now = true;
  request.tight = true;
  EXPECT_EQ(planned(request, host).enforced, "cgroup+landlock+seccomp");
}

TEST(plan, v1_stands_in_where_device_programs_are_impossible) {
  const Request request = two_gpus_give_1();
  Host host = root_host(request);
  host.device_programs = {{.folder = "/cg2", .count = 1, .attach_flags = BPF_F_ALLOW_OVERRIDE}};
  const Plan plan = planned(request, host);
  EXPECT_EQ(plan.layers.front(), Layer::cgroup1);
  EXPECT_EQ(plan.cgroup1_parent, "/cg1/a");
  EXPECT_TRUE(plan.cgroup2_parent.empty());
  EXPECT_TRUE(says(plan.notes, "overridable"));
}

TEST(plan, a_program_above_that_shares_does_no_harm) {
  const Request request = two_gpus_give_1();
  Host host = root_host(request);
  host.device_programs = {{.folder = "/cg2", .count = 2, .attach_flags = BPF_F_ALLOW_MULTI}};
  EXPECT_EQ(planned(request, host).layers.front(), Layer::cgroup2);
}

TEST(plan, programs_above_that_forbid_or_would_be_displaced_are_an_error_for_cgroup) {
  Request request = two_gpus_give_1();
  request.methods = {Method::cgroup};
  Host host = root_host(request);
  host.cgroup1_devices.reset();
  host.device_programs = {{.folder = "/cg2/session", .count = 1, .attach_flags = 0}};
  EXPECT_NE(refusal(request, host).find("/cg2/session forbids further ones"), std::string::npos);
  EXPECT_NE(refusal(request, host).find("--enforce landlock would work here"), std::string::npos);
  host.device_programs[0].attach_flags = BPF_F_ALLOW_OVERRIDE;
  EXPECT_NE(refusal(request, host).find("would switch it off"), std::string::npos);
}

TEST(plan, cgroup_as_user_says_why_not_and_what_would_work) {
  Request request = two_gpus_give_1();
  request.methods = {Method::cgroup};
  const std::string text = refusal(request, user_host(request));
  EXPECT_NE(text.find("--enforce cgroup is not available"), std::string::npos) << text;
  EXPECT_NE(text.find("CAP_BPF"), std::string::npos) << text;
  EXPECT_NE(text.find("--enforce landlock would work here"), std::string::npos) << text;
}

TEST(plan, mount_where_it_is_impossible_says_why_and_what_would_work) {
  for (const bool tight : {false, true}) {
    Request request = two_gpus_give_1();
    request.methods = {Method::mount};
    request.tight = tight;
    Host host = user_host(request);
    host.mount_trouble = "AppArmor takes the rights";
    host.mount_remedy = "as root: a profile";
    const std::string text = refusal(request, host);
    EXPECT_NE(text.find("--enforce mount is not available: AppArmor takes the rights"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("as root: a profile; or "), std::string::npos) << text;
    EXPECT_NE(text.find(tight ? "--tight uses Landlock" : "--enforce landlock would work here"),
              std::string::npos)
        << text;
  }
}

TEST(plan, of_a_list_each_method_must_be_possible) {
  Request request = two_gpus_give_1();
  request.methods = {Method::cgroup, Method::landlock};
  EXPECT_NE(refusal(request, user_host(request)).find("--enforce cgroup is not available"),
            std::string::npos);
  Host host = root_host(request);
  host.landlock_abi = 0;
  EXPECT_NE(refusal(request, host).find("--enforce landlock is not available"), std::string::npos);
}

TEST(plan, auto_takes_mounts_only_where_there_is_neither_cgroup_nor_landlock) {
  const Request request = two_gpus_give_1();
  Host host = user_host(request);
  EXPECT_EQ(planned(request, host).enforced, "landlock+seccomp");
  host.landlock_abi = 0;
  const Plan plan = planned(request, host);
  EXPECT_EQ(plan.enforced, "mount");
  EXPECT_TRUE(plan.user_namespaces);
  EXPECT_TRUE(says(plan.notes, "sudo"));
  EXPECT_TRUE(says(plan.general_limits, "loses its cover"));
  EXPECT_FALSE(plan.no_new_privs);
}

TEST(plan, mounts_as_root_name_what_root_loses_and_keeps) {
  Request request = two_gpus_give_1();
  request.methods = {Method::mount};
  Host host = root_host(request);
  host.landlock_abi = 5;
  host.driver_params = "/proc/driver/nvidia/params";
  const Plan plan = planned(request, host);
  EXPECT_FALSE(plan.user_namespaces);
  EXPECT_EQ(plan.driver_params, "/proc/driver/nvidia/params");
  EXPECT_TRUE(says(plan.notes, "may not mount"));
  EXPECT_TRUE(says(plan.general_limits, "as root"));
  EXPECT_TRUE(says(plan.not_covered, "ptrace"));  // no scope below ABI 6
}

TEST(plan, a_mount_covers_a_name_that_landlock_cannot_refuse) {
  Request request = two_gpus_give_1();
  request.tight = true;
  request.methods = {Method::mount};
  Host host = user_host(request);
  host.refused[0].aliases = {
      {.path = "/tmp/x", .kind = Alias::Kind::node, .shared_folder = "/tmp"}};
  const Plan plan = planned(request, host);
  EXPECT_TRUE(is_held(plan, plan.refused.back()));
  EXPECT_FALSE(is_held_uncovered(plan, plan.refused.back()));
  EXPECT_FALSE(says(plan.not_covered, "/tmp/x"));
}

TEST(plan, auto_never_falls_to_the_variable_unasked) {
  Request request = two_gpus_give_1();
  Host host = user_host(request);
  host.landlock_abi = 0;
  host.mount_trouble = "user namespaces are switched off";
  EXPECT_NE(refusal(request, host).find("--allow-unenforced"), std::string::npos);
  request.allow_unenforced = true;
  const Plan plan = planned(request, host);
  EXPECT_EQ(plan.enforced, "none");
  EXPECT_TRUE(says(plan.general_limits, "nothing is enforced"));
  EXPECT_EQ(value_of(plan, "CUDA_VISIBLE_DEVICES"), "GPU-1aaa");
}

TEST(plan, landlock_without_the_filter_is_named_as_what_it_is) {
  Request request = two_gpus_give_1();
  Host host = user_host(request);
  host.seccomp_filter = false;
  const Plan plan = planned(request, host);
  EXPECT_EQ(plan.enforced, "landlock");
  EXPECT_TRUE(says(plan.not_covered, "mode 3"));
  request.tight = true;
  EXPECT_NE(refusal(request, host).find("seccomp"), std::string::npos);
}

TEST(plan, tight_needs_landlock) {
  Request request = two_gpus_give_1();
  request.tight = true;
  Host host = root_host(request);
  host.landlock_abi = 0;
  EXPECT_NE(refusal(request, host).find("--tight needs Landlock"), std::string::npos);
  request.methods = {Method::env};
  EXPECT_NE(refusal(request, root_host(request)).find("enforces nothing"), std::string::npos);
}

TEST(plan, a_cgroup_without_landlock_scopes_names_the_process_outside) {
  const Request request = two_gpus_give_1();
  Host host = root_host(request);
  host.landlock_abi = 5;
  const Plan plan = planned(request, host);
  EXPECT_EQ(plan.layers, (Layers{Layer::cgroup2}));
  EXPECT_TRUE(says(plan.not_covered, "ptrace"));
}

TEST(plan, ways_out_by_other_processes_are_named) {
  const Request request = two_gpus_give_1();
  Host host = root_host(request);
  host.mps_pipes = {"/tmp/nvidia-mps"};
  const Plan plan = planned(request, host);
  EXPECT_TRUE(says(plan.not_covered, "MPS"));
  EXPECT_TRUE(says(plan.general_limits, "as root"));
}

TEST(plan, methods_have_names_both_ways) {
  for (const Method method :
       {Method::automatic, Method::cgroup, Method::landlock, Method::mount, Method::env})
    EXPECT_EQ(parse_methods(method_name(method)).value(), std::vector{method});
}

TEST(plan, a_list_of_methods_is_put_in_the_order_of_the_layers) {
  EXPECT_EQ(parse_methods("landlock,mount,cgroup").value(),
            (std::vector{Method::cgroup, Method::mount, Method::landlock}));
}

TEST(plan, a_list_that_means_nothing_is_an_error_that_names_it) {
  for (const auto& [text, part] : std::initializer_list<std::pair<const char*, const char*>>{
           {"docker", "expected auto"},
           {"", "expected auto"},
           {"cgroup,", "expected auto"},
           {",cgroup", "expected auto"},
           {"cgroup landlock", "expected auto"},
           {"mount,mount", "mount is named twice"},
           {"auto,cgroup", "auto stands alone"},
           {"mount,env", "env stands alone"}}) {
    const auto methods = parse_methods(text);
    ASSERT_FALSE(methods) << text;
    EXPECT_NE(methods.error().what.find(part), std::string::npos) << methods.error().what;
    EXPECT_NE(methods.error().what.find(text), std::string::npos) << methods.error().what;
  }
}

TEST(plan, the_dry_run_names_layers_nodes_variables_and_limits) {
  const Request request = two_gpus_give_1();
  const Plan plan = planned(request, root_host(request));
  const std::string text = describe(plan);
  for (const char* part : {"cgroup v2 and Landlock scope", "/dev/nvidia0", "c 195:0", "GPU 0",
                           "/dev/nvidia1", "CUDA_VISIBLE_DEVICES=GPU-1aaa", "not covered"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const nlohmann::json json = to_json(plan);
  EXPECT_EQ(json.at("enforced"), "cgroup");
  EXPECT_EQ(json.at("refused").at(0).at("major"), 195);
  EXPECT_EQ(json.at("environment").at("CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
}

}  // namespace
}  // namespace corral::isolate

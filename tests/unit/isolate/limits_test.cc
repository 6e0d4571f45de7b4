// SPDX-License-Identifier: Apache-2.0
// Limits beside the GPUs: values read, chosen and refused by tables.
#include "isolate/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "isolate/by_hand.h"
#include "isolate/plan.h"

namespace corral::isolate {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<unsigned> range(unsigned first, unsigned last) {
  std::vector<unsigned> numbers;
  for (unsigned n = first; n <= last; ++n) numbers.push_back(n);
  return numbers;
}

// Two nodes of four CPUs, GPU 0 on the first, GPU 1 on the second; all controllers of `version`.
LimitFacts two_nodes(int version) {
  LimitFacts facts;
  facts.online_cpus = range(0, 7);
  facts.our_cpus = range(0, 7);
  facts.our_mems = {0, 1};
  facts.nodes = {{.number = 0, .cpus = range(0, 3), .has_memory = true},
                 {.number = 1, .cpus = range(4, 7), .has_memory = true}};
  facts.memory_total_bytes = std::uint64_t{64} << 30;
  facts.cpuset = {.version = version, .folder = "/cg/cpuset", .trouble = {}};
  facts.memory = {.version = version, .folder = "/cg/memory", .trouble = {}};
  facts.pids = {.version = version, .folder = "/cg/pids", .trouble = {}};
  if (version == 2)
    facts.v2_places = {{.folder = "/cg", .controllers = {"cpuset", "memory", "pids"}}};
  return facts;
}

LimitFacts without_rights() {
  LimitFacts facts = two_nodes(1);
  for (Controller* controller : {&facts.cpuset, &facts.memory, &facts.pids})
    controller->trouble = "no groups can be made in " + controller->folder;
  return facts;
}

Request give(std::vector<unsigned> gpus) {
  Request request;
  for (unsigned index = 0; index < 2; ++index) {
    gpu::Gpu gpu;
    gpu.index = index;
    gpu.uuid = "GPU-" + std::to_string(index);
    gpu.node = "/dev/nvidia" + std::to_string(index);
    gpu.numa_node = static_cast<int>(index);
    request.inventory.gpus.push_back(gpu);
  }
  request.allowed.requested = true;
  request.allowed.gpus = std::move(gpus);
  return request;
}

Request with_cpus(Request request, std::string_view text) {
  request.limits.cpus = *parse_list_limit("--cpus", text);
  return request;
}
Request with_mems(Request request, std::string_view text) {
  request.limits.mems = *parse_list_limit("--mems", text);
  return request;
}

std::string refusal(const Request& request, const LimitFacts& facts) {
  const auto planned = plan_limits(request, facts);
  return planned ? "taken" : planned.error().what;
}

TEST(limits, sizes_are_binary_with_decimals) {
  EXPECT_EQ(*parse_memory_limit("512M"), 512U << 20);
  EXPECT_EQ(*parse_memory_limit("1.5G"), 3ULL << 29);
  EXPECT_EQ(*parse_memory_limit("2GiB"), 2ULL << 30);
  EXPECT_EQ(*parse_memory_limit("2gb"), 2ULL << 30);
  EXPECT_EQ(*parse_memory_limit("4194304"), 4U << 20);
  EXPECT_EQ(*parse_memory_limit("1T"), 1ULL << 40);
}

TEST(limits, wrong_sizes_are_named) {
  for (const char* text :
       {"5X", "", "G", "-1G", "0", "1K", "4194303", "1.5", "1.G", ".5G", "1.2.3G",
        "99999999999999999999G", "9000000T", "1.1234567G", "5 M", "5MM"}) {
    const auto bytes = parse_memory_limit(text);
    ASSERT_FALSE(bytes) << text << " gives " << *bytes;
    EXPECT_THAT(bytes.error().what, HasSubstr("--memory"));
  }
  EXPECT_THAT(parse_memory_limit("5X").error().what, HasSubstr("\"X\" is not a unit"));
  EXPECT_THAT(parse_memory_limit("0").error().what, HasSubstr("less than a program needs"));
  EXPECT_THAT(parse_memory_limit("9000000T").error().what, HasSubstr("too large"));
  EXPECT_THAT(parse_memory_limit("99999999999999999999G").error().what, HasSubstr("too large"));
}

TEST(limits, counts_of_processes_are_within_the_kernels) {
  EXPECT_EQ(*parse_pids_limit("1"), 1U);
  EXPECT_EQ(*parse_pids_limit("4194304"), 4194304U);
  for (const char* text : {"0", "-1", "4194305", "1.5", "many", ""})
    EXPECT_FALSE(parse_pids_limit(text)) << text;
}

TEST(limits, a_wrong_list_names_its_option) {
  EXPECT_THAT(parse_list_limit("--mems", "1,1").error().what, HasSubstr("--mems"));
  EXPECT_THAT(parse_list_limit("--cpus", "").error().what, HasSubstr("--cpus: the list is empty"));
  EXPECT_TRUE(parse_list_limit("--cpus", "auto")->automatic);
}

TEST(limits, auto_takes_the_node_of_the_gpu) {
  const auto planned = plan_limits(with_mems(with_cpus(give({1}), "auto"), "auto"), two_nodes(2));
  ASSERT_TRUE(planned) << planned.error().what;
  ASSERT_EQ(planned->limits.size(), 2U);
  EXPECT_EQ(planned->limits[0].numbers, range(4, 7));
  EXPECT_EQ(planned->limits[0].why, "NUMA node 1 of GPU 1");
  EXPECT_EQ(planned->limits[0].way, LimitWay::cgroup2);
  EXPECT_EQ(planned->limits[0].parent, "/cg");
  EXPECT_EQ(planned->limits[1].numbers, (std::vector<unsigned>{1}));
}

TEST(limits, auto_of_gpus_on_both_nodes_takes_both) {
  const auto planned = plan_limits(with_cpus(give({0, 1}), "auto"), two_nodes(1));
  ASSERT_TRUE(planned);
  EXPECT_EQ(planned->limits[0].numbers, range(0, 7));
  EXPECT_EQ(planned->limits[0].why, "NUMA node 0-1 of GPU 0-1");
  EXPECT_EQ(planned->limits[0].way, LimitWay::cgroup1);
}

TEST(limits, auto_stays_within_what_we_have) {
  LimitFacts facts = two_nodes(1);
  facts.our_cpus = {0, 1, 6};
  const auto planned = plan_limits(with_cpus(give({1}), "auto"), facts);
  ASSERT_TRUE(planned);
  EXPECT_EQ(planned->limits[0].numbers, (std::vector<unsigned>{6}));
  ASSERT_EQ(planned->notes.size(), 1U);
  EXPECT_THAT(planned->notes[0], HasSubstr("only 6 are ours"));
  facts.our_cpus = {0, 1};
  EXPECT_THAT(refusal(with_cpus(give({1}), "auto"), facts), HasSubstr("of which we have none"));
}

TEST(limits, auto_without_an_answer_is_an_error) {
  Request nothing = give({1});
  nothing.allowed = {};
  EXPECT_THAT(refusal(with_cpus(nothing, "auto"), two_nodes(1)), HasSubstr("No GPU was chosen"));
  EXPECT_THAT(refusal(with_cpus(give({}), "auto"), two_nodes(1)), HasSubstr("no GPU"));
  Request unknown = give({1});
  unknown.inventory.gpus[1].numa_node = -1;
  EXPECT_THAT(refusal(with_cpus(unknown, "auto"), two_nodes(1)), HasSubstr("does not say"));
  unknown.inventory.gpus[1].numa_node = 7;
  EXPECT_THAT(refusal(with_cpus(unknown, "auto"), two_nodes(1)), HasSubstr("node 7"));
  LimitFacts none = two_nodes(1);
  none.nodes.clear();
  EXPECT_THAT(refusal(with_cpus(give({1}), "auto"), none), HasSubstr("no NUMA nodes"));
  LimitFacts without_memory = two_nodes(1);
  without_memory.nodes[1].has_memory = false;
  EXPECT_THAT(refusal(with_mems(give({1}), "auto"), without_memory), HasSubstr("has none"));
}

TEST(limits, a_machine_of_one_node_needs_no_firmware_to_say_so) {
  LimitFacts facts = two_nodes(1);
  facts.nodes = {{.number = 0, .cpus = range(0, 7), .has_memory = true}};
  Request request = give({1});
  request.inventory.gpus[1].numa_node = -1;
  const auto planned = plan_limits(with_cpus(request, "auto"), facts);
  ASSERT_TRUE(planned) << planned.error().what;
  EXPECT_EQ(planned->limits[0].numbers, range(0, 7));
}

TEST(limits, a_list_must_be_there_and_ours) {
  EXPECT_EQ(plan_limits(with_cpus(give({1}), "1,3"), two_nodes(1))->limits[0].numbers,
            (std::vector<unsigned>{1, 3}));
  EXPECT_THAT(refusal(with_cpus(give({1}), "6-9"), two_nodes(1)),
              HasSubstr("CPU 8-9 is not there"));
  LimitFacts less = two_nodes(1);
  less.our_cpus = {0, 1};
  less.our_mems = {0};
  EXPECT_THAT(refusal(with_cpus(give({1}), "1-2"), less), HasSubstr("CPU 2 is not ours"));
  EXPECT_THAT(refusal(with_mems(give({1}), "1"), less), HasSubstr("node 1 is not ours"));
  EXPECT_THAT(refusal(with_mems(give({1}), "0,5"), less), HasSubstr("no NUMA node 5"));
}

TEST(limits, without_rights_affinity_holds_cpus_and_nothing_holds_memory) {
  const auto planned = plan_limits(with_mems(with_cpus(give({1}), "0"), "0"), without_rights());
  ASSERT_TRUE(planned);
  EXPECT_EQ(planned->limits[0].way, LimitWay::task);
  EXPECT_THAT(limit_text(planned->limits[0]), HasSubstr("by affinity: the job can change it"));
  EXPECT_THAT(limit_text(planned->limits[1]), HasSubstr("by memory policy: the job can change it"));
  Request request = give({1});
  request.limits.memory_bytes = 1U << 30;
  EXPECT_THAT(refusal(request, without_rights()), HasSubstr("--memory cannot be held here"));
  EXPECT_THAT(plan_limits(request, without_rights()).error().hint,
              HasSubstr("systemd-run --scope -p MemoryMax=1073741824"));
  request.limits = {.cpus = {}, .mems = {}, .memory_bytes = {}, .pids = 100};
  EXPECT_THAT(refusal(request, without_rights()), HasSubstr("--pids cannot be held here"));
}

TEST(limits, on_the_simulated_machine_auto_is_shown_and_not_set) {
  Request request = with_cpus(give({1}), "auto");
  request.inventory.simulated = true;
  LimitFacts facts = two_nodes(1);
  facts.our_cpus = {0};
  const auto planned = plan_limits(request, facts);
  ASSERT_TRUE(planned);
  EXPECT_EQ(planned->limits[0].way, LimitWay::simulated);
  EXPECT_EQ(planned->limits[0].numbers, range(4, 7));
  EXPECT_TRUE(limits_json(planned->limits)["cpus"]["held_by"].is_null());
}

TEST(limits, are_in_the_plan_whether_or_not_something_is_refused) {
  Request request = with_cpus(give({0, 1}), "2");
  request.limits.pids = 64;
  Host host;
  host.limits = two_nodes(2);
  const auto plan = make_plan(request, host);
  ASSERT_TRUE(plan) << plan.error().what;
  EXPECT_EQ(plan->enforced, "none");
  EXPECT_EQ(plan->limits.size(), 2U);
  EXPECT_THAT(describe(*plan),
              HasSubstr("CPUs 2 by cgroup v2 cpuset, which a job with our rights"));
  const auto json = to_json(*plan)["limits"];
  EXPECT_EQ(json["cpus"]["list"], "2");
  EXPECT_EQ(json["pids"]["count"], 64);
  EXPECT_EQ(json["pids"]["held_by"], "cgroup v2 pids");
}

TEST(limits, a_tight_job_of_root_cannot_leave_them) {
  Request request = with_cpus(give({0, 1}), "2");
  request.refuse_paths = {"/dev/full"};
  request.tight = true;
  Host host;
  host.root = host.cap_sys_admin = true;
  host.landlock_abi = 7;
  host.seccomp_filter = true;
  host.cgroup_mounts = {"/cg"};
  host.cgroup2_trouble = "none here";
  host.limits = two_nodes(1);
  host.refused = {
      {.node = {.path = "/dev/full", .type = Node::Type::character, .major = 1, .minor = 7},
       .refused_now = false}};
  const auto plan = make_plan(request, host);
  ASSERT_TRUE(plan) << plan.error().what;
  EXPECT_FALSE(plan->limits[0].job_can_leave);
  EXPECT_TRUE(plan->filter_cgroup_exits);
  EXPECT_THAT(limit_text(plan->limits[0]), Not(HasSubstr("leave")));
}

TEST(limits, the_place_on_v2_is_one_that_holds_what_only_a_group_can) {
  LimitFacts facts = two_nodes(2);
  facts.v2_places = {{.folder = "/cg/cpus", .controllers = {"cpuset"}},
                     {.folder = "/cg/ours",
                      .step = FirstStep::settle,
                      .controllers = {"memory", "pids"},
                      .note = "we moved"},
                     {.step = FirstStep::scope, .controllers = {"memory", "pids"}}};
  Request request = with_cpus(give({1}), "4");
  request.limits.memory_bytes = 1U << 30;
  const auto planned = plan_limits(request, facts);
  ASSERT_TRUE(planned) << planned.error().what;
  EXPECT_EQ(planned->limits[0].way, LimitWay::task);
  EXPECT_EQ(planned->limits[1].way, LimitWay::cgroup2);
  EXPECT_EQ(planned->limits[1].parent, "/cg/ours");
  EXPECT_EQ(planned->notes, std::vector<std::string>{"we moved"});
  request.limits.memory_bytes.reset();
  EXPECT_EQ(plan_limits(request, facts)->limits[0].parent, "/cg/cpus");
  EXPECT_TRUE(plan_limits(request, facts)->notes.empty());
}

TEST(limits, a_place_with_the_cpuset_too_is_better) {
  LimitFacts facts = two_nodes(2);
  facts.v2_places = {{.folder = "/cg/ours", .controllers = {"memory", "pids"}},
                     {.step = FirstStep::scope, .controllers = {"cpuset", "memory", "pids"}}};
  Request request = with_cpus(give({1}), "4");
  request.limits.memory_bytes = 1U << 30;
  const auto planned = plan_limits(request, facts);
  ASSERT_TRUE(planned);
  EXPECT_EQ(planned->v2_place, facts.v2_places[1]);
  EXPECT_EQ(
      limit_text(planned->limits[1]),
      "memory 1024 MiB by cgroup v2 memory in a systemd scope of its own, which a job with our "
      "rights could leave");
  EXPECT_EQ(limits_json(planned->limits)["cpus"]["held_by"],
            "cgroup v2 cpuset in a systemd scope of its own");
}

TEST(limits, places_that_hold_one_each_of_two_are_none) {
  LimitFacts facts = two_nodes(2);
  facts.v2_places = {{.folder = "/a", .controllers = {"memory"}},
                     {.folder = "/b", .controllers = {"pids"}}};
  Request request = give({1});
  request.limits.memory_bytes = 1U << 30;
  request.limits.pids = 10;
  EXPECT_THAT(refusal(request, facts), HasSubstr("no group can have all that was asked for"));
}

TEST(limits, only_a_filter_keeps_a_job_in_a_v2_group) {
  Request request = with_cpus(give({0, 1}), "2");
  request.refuse_paths = {"/dev/full"};
  request.methods = {Method::landlock};
  Host host;
  host.landlock_abi = 7;
  host.seccomp_filter = true;
  host.cgroup_mounts = {"/cg"};
  host.limits = two_nodes(2);
  host.refused = {
      {.node = {.path = "/dev/full", .type = Node::Type::character, .major = 1, .minor = 7},
       .refused_now = false}};
  const auto plan = make_plan(request, host);
  ASSERT_TRUE(plan) << plan.error().what;
  EXPECT_EQ(plan->read_only, std::vector<std::string>{"/cg"});
  EXPECT_TRUE(plan->limits[0].job_can_leave);  // clone3 into another group asks no Landlock rule
  request.tight = true;
  request.methods = {Method::automatic};
  const auto tight = make_plan(request, host);
  ASSERT_TRUE(tight) << tight.error().what;
  EXPECT_TRUE(tight->filter_cgroup_exits);
  EXPECT_FALSE(tight->limits[0].job_can_leave);
}

TEST(by_hand, tells_all_three_ways_with_the_same_values) {
  Plan plan;
  plan.refused = {
      {.node = {.path = "/dev/nvidia0", .type = Node::Type::character, .major = 195, .minor = 0},
       .why = "GPU 0"}};
  plan.allowed = {{.path = "/dev/nvidia1", .why = "GPU 1"}};
  plan.environment = {{.name = "CUDA_VISIBLE_DEVICES", .value = "GPU-1"}};
  plan.limits = {{.kind = LimitKind::cpus, .numbers = {4, 5, 6, 7}},
                 {.kind = LimitKind::memory, .amount = 1U << 30},
                 {.kind = LimitKind::pids, .amount = 100}};
  const std::string text = commands_by_hand(plan, {"python3", "my train.py"});
  for (const char* line :
       {"# cgroup v1,", "echo 'c 195:0 rwm' > /sys/fs/cgroup/devices/by-hand/devices.deny",
        "echo 4-7 > /sys/fs/cgroup/cpuset/by-hand/cpuset.cpus",
        "cat /sys/fs/cgroup/cpuset/by-hand/../cpuset.mems > ",
        "echo 1073741824 > /sys/fs/cgroup/memory/by-hand/memory.limit_in_bytes",
        "echo 100 > /sys/fs/cgroup/pids/by-hand/pids.max", "# cgroup v2,",
        "echo '+cpuset +memory +pids' > /sys/fs/cgroup/cgroup.subtree_control",
        "echo 1073741824 > /sys/fs/cgroup/by-hand/memory.max",
        "#   c 195:0 rwm  # /dev/nvidia0, GPU 0", "# systemd-run,",
        "-p DeviceAllow='/dev/nvidia1 rw'", "-p AllowedCPUs=4-7",
        "-p MemoryMax=1073741824 -p MemorySwapMax=0", "-p TasksMax=100",
        "env CUDA_VISIBLE_DEVICES=GPU-1 python3 'my train.py'"})
    EXPECT_THAT(text, HasSubstr(line));
  EXPECT_THAT(text, Not(HasSubstr("DeviceAllow='/dev/nvidia0")));
}

TEST(by_hand, asks_for_no_rights) {
  Request request = give({0, 1});
  request.limits.memory_bytes = 1U << 30;
  request.by_hand = true;
  const auto planned = plan_limits(request, without_rights());
  ASSERT_TRUE(planned) << planned.error().what;
  EXPECT_EQ(planned->limits[0].way, LimitWay::by_hand);
}

}  // namespace
}  // namespace corral::isolate

// SPDX-License-Identifier: Apache-2.0
// Places for limits on made-up hosts of cgroup v2, with and without systemd.
#include "isolate/limit_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "must_work.h"

namespace corral::isolate {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::SizeIs;

// The v2 controllers of the machine that tests run on may belong to v1.
class MadeV2 : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (std::filesystem::temp_directory_path() / "corral-v2-XXXXXX").string();
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    root_ = folder;
    write("/proc/self/mountinfo", "30 1 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
    group("/cg", "cpuset memory pids", "");
    std::filesystem::remove(root_ + "/cg/cgroup.events");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, std::string_view text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void group(const std::string& path, std::string_view controllers, std::string_view on) const {
    write(path + "/cgroup.procs", "");
    write(path + "/cgroup.type", "domain\n");
    write(path + "/cgroup.events", "populated 1\n");
    write(path + "/cgroup.controllers", std::string(controllers) + "\n");
    write(path + "/cgroup.subtree_control", std::string(on) + "\n");
  }
  // Our own group, with us in it and, `others`, process 1.
  void ours(const std::string& path, bool others) const {
    write("/proc/self/cgroup", "0::" + path + "\n");
    write("/cg" + path + "/cgroup.procs",
          std::to_string(::getpid()) + "\n" + (others ? "1\n" : ""));
  }
  void delegate(const std::string& path) const {
    ASSERT_EQ(::setxattr((root_ + path).c_str(), "user.delegate", "1", 1, 0), 0)
        << "no extended attributes in " << root_;
  }
  V2Places find(const Manager& manager = {}, bool as_root = false) const {
    return find_v2_places(host::Root(root_), manager, as_root);
  }
  static Manager systemd() {
    return {.trouble = {},
            .booted = true,
            .user = true,
            .bus = "/bus",
            .controllers = {"memory", "pids"},
            .pids_max = {}};
  }
  std::string root_;
};

TEST_F(MadeV2, the_root_group_takes_processes_and_passes_on) {
  write("/cg/cgroup.subtree_control", "pids\n");
  ours("/", true);
  const V2Places user = find();
  ASSERT_EQ(user.places.size(), 1U);
  EXPECT_EQ(user.places[0],
            (V2Place{.folder = "/cg", .step = FirstStep::none, .controllers = {"pids"}}));
  const V2Places root = find({}, true);
  ASSERT_EQ(root.places.size(), 1U);
  EXPECT_EQ(root.places[0], (V2Place{.folder = "/cg",
                                     .step = FirstStep::enable,
                                     .controllers = {"cpuset", "memory", "pids"}}));
}

TEST_F(MadeV2, a_group_in_which_we_are_alone_is_left_for_one_below) {
  group("/cg/job", "memory pids", "");
  ours("/job", false);
  const V2Places found = find();
  ASSERT_EQ(found.places.size(), 1U);
  EXPECT_EQ(found.places[0].folder, "/cg/job");
  EXPECT_EQ(found.places[0].step, FirstStep::settle);
  EXPECT_EQ(found.places[0].controllers, (std::vector<std::string>{"memory", "pids"}));
}

TEST_F(MadeV2, what_a_killed_run_left_passed_on_does_not_keep_us_out) {
  group("/cg/job", "memory pids", "pids");
  write("/cg/job/cgroup.type", "domain threaded\n");
  ours("/job", false);
  const V2Places found = find();
  ASSERT_EQ(found.places.size(), 2U);
  EXPECT_EQ(found.places[0].controllers, std::vector<std::string>{"pids"});
  EXPECT_EQ(found.places[1].step, FirstStep::settle);
  write("/cg/job/cgroup.type", "threaded\n");
  EXPECT_EQ(find().places.size(), 1U);
}

TEST_F(MadeV2, others_in_our_group_are_named_and_never_moved) {
  group("/cg/job", "memory pids", "");
  ours("/job", true);
  const V2Places found = find();
  EXPECT_THAT(found.places, SizeIs(0));
  EXPECT_THAT(found.troubles, Contains(AllOf(HasSubstr("/cg/job cannot pass controllers on"),
                                             HasSubstr("process 1 ("))));
  // One that our pid namespace does not show.
  write("/cg/job/cgroup.procs", "0\n");
  EXPECT_THAT(find().troubles, Contains(HasSubstr("outside our pid namespace")));
}

TEST_F(MadeV2, a_group_above_that_passes_on_is_taken_where_nothing_is_lost) {
  group("/cg/top", "cpuset memory pids", "memory pids");
  group("/cg/top/shell", "memory pids", "");
  ours("/top/shell", true);
  const V2Places found = find();
  ASSERT_EQ(found.places.size(), 1U);
  EXPECT_EQ(found.places[0].folder, "/cg/top");
  EXPECT_EQ(found.places[0].step, FirstStep::none);
  EXPECT_THAT(found.places[0].note, HasSubstr("shell, in which we are, limits nothing"));
  write("/cg/top/shell/memory.max", "1073741824\n");
  EXPECT_THAT(find().places, SizeIs(0));
  EXPECT_THAT(find().troubles, Contains(HasSubstr("memory.max is 1073741824")));
}

TEST_F(MadeV2, root_finds_the_root_group_above_unless_systemd_manages_it) {
  group("/cg/agent", "memory pids", "");
  ours("/agent", true);
  const V2Places found = find({}, true);
  ASSERT_EQ(found.places.size(), 1U);
  EXPECT_EQ(found.places[0].folder, "/cg");
  EXPECT_EQ(found.places[0].step, FirstStep::enable);
  Manager mute = systemd();
  mute.trouble = "the bus is away";
  const V2Places managed = find(mute, true);
  EXPECT_THAT(managed.places, SizeIs(0));
  EXPECT_THAT(managed.troubles, Contains("the bus is away"));
}

TEST_F(MadeV2, systemd_is_asked_for_a_scope_where_it_did_not_delegate) {
  group("/cg/user.slice", "memory pids", "memory pids");
  group("/cg/user.slice/session-3.scope", "memory pids", "");
  ours("/user.slice/session-3.scope", false);
  const V2Places found = find(systemd());
  ASSERT_EQ(found.places.size(), 1U);
  EXPECT_EQ(found.places[0].step, FirstStep::scope);
  EXPECT_EQ(found.places[0].note, "");
  EXPECT_THAT(found.troubles, Contains(HasSubstr("systemd did not delegate")));
  Manager without_lingering = systemd();
  without_lingering.ends_at_logout = true;
  EXPECT_THAT(find(without_lingering).places.at(0).note, HasSubstr("loginctl enable-linger"));
  write("/cg/user.slice/session-3.scope/memory.high", "1000\n");
  EXPECT_THAT(find(systemd()).places, SizeIs(0));
  EXPECT_THAT(find(systemd()).troubles, Contains(HasSubstr("memory.high is 1000")));
}

TEST_F(MadeV2, leaving_a_user_for_a_slice_of_the_system_leaves_all_between) {
  group("/cg/user.slice/user@7.service/app.slice/x.scope", "memory pids", "");
  ours("/user.slice/user@7.service/app.slice/x.scope", true);
  Manager manager = systemd();
  manager.slice = "user.slice";
  EXPECT_EQ(find(manager).places.size(), 1U);
  write("/cg/user.slice/user@7.service/memory.max", "1000\n");
  EXPECT_THAT(find(manager).places, SizeIs(0));
  EXPECT_THAT(find(manager).troubles, Contains(HasSubstr("user@7.service: memory.max is 1000")));
}

TEST_F(MadeV2, a_scope_keeps_the_limit_of_processes) {
  group("/cg/a.scope", "memory pids", "");
  write("/cg/a.scope/pids.max", "100\n");
  ours("/a.scope", true);
  Manager manager = systemd();
  manager.pids_max = 100;
  EXPECT_EQ(find(manager).places.size(), 1U);
}

TEST_F(MadeV2, a_delegated_group_is_ours_and_what_is_of_others_is_not_left) {
  group("/cg/unit.scope", "memory pids", "");
  ours("/unit.scope", false);
  delegate("/cg/unit.scope");
  const V2Places found = find(systemd());
  ASSERT_EQ(found.places.size(), 1U);
  EXPECT_EQ(found.places[0].step, FirstStep::settle);
  // A batch system's part of the tree: its groups are how it knows its jobs.
  ours("/unit.scope", true);
  EXPECT_THAT(find(systemd()).places, SizeIs(0));
  EXPECT_THAT(find(systemd()).troubles, Contains(HasSubstr("leaves to somebody else")));
}

TEST_F(MadeV2, what_a_user_manager_has_below_it_is_not_delegated_to_us) {
  group("/cg/user@7.service/app.slice/vte.scope", "memory pids", "");
  delegate("/cg/user@7.service");
  const host::Root root(root_);
  EXPECT_FALSE(is_delegated(root, "/cg", "/cg/user@7.service/app.slice/vte.scope"));
  delegate("/cg/user@7.service/app.slice");
  EXPECT_TRUE(is_delegated(root, "/cg", "/cg/user@7.service/app.slice/vte.scope"));
}

TEST_F(MadeV2, limits_are_told_from_what_limits_nothing) {
  const host::Root root(root_);
  group("/cg/g", "", "");
  const auto holds = [&](const std::string& name, std::string_view text) {
    write("/cg/g/" + name, text);
    const std::string found = limit_that_holds(root, "/cg/g");
    std::filesystem::remove(root_ + "/cg/g/" + name);
    return found;
  };
  for (const auto& [name, text] : std::vector<std::pair<std::string, std::string>>{
           {"memory.max", "max\n"},
           {"cpu.max", "max 100000\n"},
           {"cpuset.cpus", "\n"},
           {"hugetlb.1GB.max", "9223372036854771712\n"},
           {"io.max", ""},
           {"rdma.max", "mlx5_0 hca_handle=max hca_object=max\n"},
           {"misc.max", "sev max\nsev_es max\n"},
           {"cgroup.max.depth", "10\n"},
           {"memory.current", "5\n"}})
    EXPECT_EQ(holds(name, text), "") << name;
  for (const auto& [name, text] : std::vector<std::pair<std::string, std::string>>{
           {"memory.max", "0\n"},
           {"memory.high", "4096\n"},
           {"cpu.max", "50000 100000\n"},
           {"cpuset.mems", "0\n"},
           {"io.max", "8:0 rbps=1048576 wbps=max\n"},
           {"rdma.max", "mlx5_0 hca_handle=2 hca_object=max\n"},
           {"hugetlb.2MB.max", "0\n"}})
    EXPECT_THAT(holds(name, text), HasSubstr(name + " is ")) << name;
  EXPECT_THAT(limit_that_holds(root, "/cg/none"), HasSubstr("cannot be read"));
}

TEST_F(MadeV2, a_controller_is_of_v1_before_it_is_of_a_place) {
  group("/cg/job", "memory", "");
  ours("/job", false);
  const V2Places found = find();
  const host::Root root(root_);
  EXPECT_EQ(read_controller(root, "memory", found).version, 2);
  EXPECT_EQ(read_controller(root, "memory", found).trouble, "");
  EXPECT_THAT(read_controller(root, "pids", found).trouble,
              HasSubstr("no group that we may make on cgroup v2 has the pids controller"));
  write("/proc/self/cgroup", "3:pids:/a\n0::/job\n");
  write("/proc/self/mountinfo",
        "30 1 0:26 / /cg rw - cgroup2 cgroup2 rw\n31 1 0:27 / /v1 rw - cgroup cgroup rw,pids\n");
  write("/v1/a/cgroup.procs", "");
  const Controller pids = read_controller(root, "pids", find());
  EXPECT_EQ(pids.version, 1);
  EXPECT_EQ(pids.folder, "/v1/a");
  EXPECT_EQ(pids.trouble, "");
}

TEST_F(MadeV2, no_hierarchy_at_all_is_named) {
  ours("/", true);
  write("/proc/self/mountinfo", "30 1 0:26 / /tmp rw - tmpfs tmpfs rw\n");
  EXPECT_THAT(find().troubles, Contains(HasSubstr("cgroup v2 is not mounted")));
  EXPECT_EQ(read_controller(host::Root(root_), "pids", find()).version, 0);
  EXPECT_THAT(read_controller(host::Root(root_), "pids", find()).trouble,
              HasSubstr("no cgroup hierarchy"));
}

// A made-up host with systemd on it, and a session of user 7.
class MadeSystemd : public MadeV2 {
 protected:
  void SetUp() override {
    MadeV2::SetUp();
    std::filesystem::create_directories(root_ + "/run/systemd/system");
    write("/proc/1/comm", "systemd\n");
    write("/run/user/7/bus", "");
    write("/run/dbus/system_bus_socket", "");
    write("/run/systemd/users/7", "NAME=joe\nSTATE=active\n");
    group("/cg/user.slice/user-7.slice/user@7.service", "memory pids", "memory pids");
    group("/cg/user.slice/user-7.slice/session-3.scope", "memory pids", "");
    ours("/user.slice/user-7.slice/session-3.scope", true);
  }
  Manager manager(uid_t uid, const std::string& runtime = "") const {
    return find_manager(host::Root(root_), uid, runtime);
  }
};

TEST_F(MadeSystemd, a_user_has_a_manager_and_root_the_systems) {
  const Manager user = manager(7);
  EXPECT_EQ(user.trouble, "");
  EXPECT_EQ(user.bus, "/run/user/7/bus");
  EXPECT_EQ(user.slice, "");  // that of the session is not the user manager's
  EXPECT_EQ(user.controllers, (std::vector<std::string>{"memory", "pids"}));
  EXPECT_TRUE(user.ends_at_logout);
  write("/var/lib/systemd/linger/joe", "");
  EXPECT_FALSE(manager(7).ends_at_logout);
  const Manager system = manager(0);
  EXPECT_EQ(system.trouble, "");
  EXPECT_EQ(system.bus, "/run/dbus/system_bus_socket");
  EXPECT_EQ(system.slice, "user-7.slice");
  EXPECT_EQ(system.controllers, (std::vector<std::string>{"cpuset", "memory", "pids"}));
  EXPECT_FALSE(system.ends_at_logout);
}

TEST_F(MadeSystemd, without_a_bus_or_as_a_guest_nothing_is_asked) {
  EXPECT_THAT(manager(7, "/run/elsewhere").trouble, HasSubstr("/run/elsewhere/bus is not there"));
  EXPECT_THAT(manager(8).trouble, HasSubstr("no manager of systemd runs for this user"));
  write("/proc/1/comm", "sh\n");  // a container that shows the host's /run
  EXPECT_FALSE(manager(7).booted);
  EXPECT_EQ(manager(7).trouble, "systemd does not run here");
}

TEST_F(MadeSystemd, the_slice_is_the_innermost_of_the_managers_own) {
  ours("/user.slice/user-7.slice/user@7.service/app.slice/app-dev.slice/x.scope", true);
  EXPECT_EQ(manager(7).slice, "app-dev.slice");
  EXPECT_EQ(manager(0).slice, "user-7.slice");
}

TEST_F(MadeSystemd, the_main_process_of_a_service_stays_in_it) {
  ours("/system.slice/train.service", false);
  EXPECT_EQ(manager(0).trouble, "");
  write("/proc/" + std::to_string(::getppid()) + "/comm", "systemd\n");
  EXPECT_THAT(manager(0).trouble, HasSubstr("main process of train.service: put Delegate=yes"));
}

TEST(systemd, the_call_has_every_property_and_counts_them) {
  const Manager manager{.bus = "/b", .slice = "app.slice", .pids_max = 50};
  const std::vector<std::string> words =
      scope_call(manager, {.name = "n.scope", .description = "d", .pid = 12});
  const auto at = [&](const std::string& word) {
    return std::ranges::find(words, word) - words.begin();
  };
  EXPECT_EQ(words[0], "--address=unix:path=/b");
  EXPECT_EQ(words[1], "--timeout=2000ms");
  EXPECT_EQ(words[static_cast<std::size_t>(at("fail")) + 1], "6");
  EXPECT_EQ(std::vector<std::string>(words.begin() + at("PIDs"), words.begin() + at("PIDs") + 4),
            (std::vector<std::string>{"PIDs", "au", "1", "12"}));
  EXPECT_THAT(words, Contains("app.slice"));
  EXPECT_THAT(words, Contains("50"));
  EXPECT_EQ(words.back(), "0");
}

}  // namespace
}  // namespace corral::isolate

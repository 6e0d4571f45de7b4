// SPDX-License-Identifier: Apache-2.0
// Where the groups of a process show: v1, v2, hybrid, in containers and in namespaces.
#include "host/cgroup.h"

#include <gtest/gtest.h>

#include "fixture_host.h"

namespace corral::host {
namespace {

std::vector<CgroupEntry> entries(std::string_view text) { return parse_cgroup(text).value(); }
std::vector<Mount> mounts(std::string_view text) { return parse_mountinfo(text).value(); }

constexpr std::string_view kHybridMounts =
    "36 31 0:33 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n"
    "37 31 0:34 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

TEST(cgroup, controllers_and_paths_are_read) {
  const auto all = entries("9:name=systemd:/\n3:cpu,cpuacct:/jobs/a:b\n0::/user.slice\n");
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[1].controllers, (std::vector<std::string>{"cpu", "cpuacct"}));
  EXPECT_EQ(all[1].path, "/jobs/a:b");
  ASSERT_NE(find_v2(all), nullptr);
  EXPECT_EQ(find_v2(all)->path, "/user.slice");
  EXPECT_EQ(find_v1(all, "cpuacct"), &all[1]);
  EXPECT_EQ(find_v1(all, "devices"), nullptr);
}

TEST(cgroup, a_broken_line_is_an_error) {
  EXPECT_FALSE(parse_cgroup("5:devices\n"));
  EXPECT_FALSE(parse_cgroup("five:devices:/\n"));
  EXPECT_FALSE(parse_cgroup("5:devices:relative\n"));
  EXPECT_TRUE(parse_cgroup(""));
}

TEST(cgroup, a_hybrid_host_shows_both) {
  const auto all = entries("5:devices:/job\n0::/\n");
  const auto v2 = locate_v2(all, mounts(kHybridMounts));
  ASSERT_TRUE(v2);
  EXPECT_EQ(v2->folder, "/sys/fs/cgroup/unified");
  const auto v1 = locate_v1(all, mounts(kHybridMounts), "devices");
  ASSERT_TRUE(v1);
  EXPECT_EQ(v1->folder, "/sys/fs/cgroup/devices/job");
  EXPECT_EQ(v1->mount_point, "/sys/fs/cgroup/devices");
}

TEST(cgroup, a_container_sees_its_own_part_of_the_hierarchy) {
  const auto table = mounts("41 31 0:38 /docker/ab /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  EXPECT_EQ(locate_v2(entries("0::/docker/ab/x\n"), table)->folder, "/sys/fs/cgroup/x");
  EXPECT_EQ(locate_v2(entries("0::/docker/ab\n"), table)->folder, "/sys/fs/cgroup");
  EXPECT_FALSE(locate_v2(entries("0::/docker/abc\n"), table));
}

TEST(cgroup, a_group_outside_the_namespace_is_not_located) {
  EXPECT_FALSE(locate_v2(entries("0::/../other\n"), mounts(kHybridMounts)));
}

TEST(cgroup, a_hierarchy_that_is_not_mounted_is_not_located) {
  EXPECT_FALSE(locate_v2(entries("0::/\n"), mounts("1 0 0:1 / / rw - ext4 /dev/vda rw\n")));
  EXPECT_FALSE(locate_v1(entries("5:devices:/\n"), {}, "devices"));
}

TEST(cgroup, our_own_entries_parse) {
  const auto live = read_cgroup(Root());
  ASSERT_TRUE(live) << live.error().what;
}

TEST(cgroup, controllers_of_a_group_are_names) {
  const tests::MadeHost host;
  host.write("/cpu", "cpuset cpu  memory pids\n");
  host.write("/none", "\n");
  EXPECT_EQ(read_controllers(host.root().path("/cpu")).value(),
            (std::vector<std::string>{"cpuset", "cpu", "memory", "pids"}));
  EXPECT_TRUE(read_controllers(host.root().path("/none")).value().empty());
  EXPECT_FALSE(read_controllers(host.root().path("/missing")));
}

}  // namespace
}  // namespace corral::host

// SPDX-License-Identifier: Apache-2.0
// Mount tables as kernels write them, and the further names of a node that follow from them.
#include "host/mountinfo.h"

#include <gtest/gtest.h>

namespace corral::host {
namespace {

constexpr std::string_view kTable =
    "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n"
    "24 27 0:6 / /dev rw,relatime shared:2 master:1 - devtmpfs devtmpfs rw,mode=755\n"
    "40 27 0:6 / /srv/box/dev rw,nodev - devtmpfs devtmpfs rw,mode=755\n"
    "41 27 0:6 /dri /srv/only\\040dri rw - devtmpfs devtmpfs rw\n"
    "42 27 254:0 /home/user /mnt/home rw - ext4 /dev/vda rw\n";

std::vector<Mount> table() { return parse_mountinfo(kTable).value(); }

TEST(mountinfo, every_field_is_read) {
  const Mount mount = table().at(1);
  EXPECT_EQ(mount.id, 24U);
  EXPECT_EQ(mount.parent_id, 27U);
  EXPECT_EQ(mount.major, 0U);
  EXPECT_EQ(mount.minor, 6U);
  EXPECT_EQ(mount.root, "/");
  EXPECT_EQ(mount.point, "/dev");
  EXPECT_TRUE(mount.has_option("relatime"));
  EXPECT_FALSE(mount.has_option("nodev"));
  EXPECT_EQ(mount.type, "devtmpfs");
  EXPECT_EQ(mount.source, "devtmpfs");
  EXPECT_TRUE(mount.has_super_option("mode=755"));
}

TEST(mountinfo, escaped_names_are_unescaped) { EXPECT_EQ(table().at(3).point, "/srv/only dri"); }

TEST(mountinfo, a_broken_line_is_an_error_that_names_it) {
  const auto broken = parse_mountinfo("27 1 254:0 / / rw - ext4 /dev/vda rw\n24 27 0:6 / /dev\n");
  ASSERT_FALSE(broken);
  EXPECT_NE(broken.error().what.find("line 2"), std::string::npos) << broken.error().what;
}

TEST(mountinfo, a_source_may_be_missing_its_super_options) {
  EXPECT_TRUE(parse_mountinfo("27 1 254:0 / / rw - ext4 /dev/vda"));
  EXPECT_FALSE(parse_mountinfo("27 1 254:0 / / rw - ext4"));
}

TEST(mountinfo, a_second_mount_gives_a_node_a_second_name) {
  EXPECT_EQ(other_names(table(), 24, "/dev/nvidia0"),
            (std::vector<std::string>{"/srv/box/dev/nvidia0"}));
}

TEST(mountinfo, a_mount_of_a_folder_names_only_what_is_below_it) {
  EXPECT_EQ(other_names(table(), 24, "/dev/dri/card1"),
            (std::vector<std::string>{"/srv/box/dev/dri/card1", "/srv/only dri/card1"}));
  EXPECT_EQ(other_names(table(), 24, "/dev/drink"),
            (std::vector<std::string>{"/srv/box/dev/drink"}));
}

TEST(mountinfo, names_lead_back_from_the_second_mount) {
  EXPECT_EQ(other_names(table(), 42, "/mnt/home/node"),
            (std::vector<std::string>{"/home/user/node"}));
  EXPECT_EQ(other_names(table(), 27, "/home/user"), (std::vector<std::string>{"/mnt/home"}));
}

TEST(mountinfo, an_unknown_mount_has_no_other_names) {
  EXPECT_TRUE(other_names(table(), 99, "/dev/nvidia0").empty());
  EXPECT_TRUE(other_names(table(), 24, "/elsewhere").empty());
}

TEST(mountinfo, the_live_table_parses) {
  const auto live = read_mountinfo(Root());
  ASSERT_TRUE(live) << live.error().what;
  EXPECT_FALSE(live->empty());
}

TEST(mountinfo, without_proc_says_what_is_missing) {
  const auto mounts = read_mountinfo(Root("/no/such/root"));
  ASSERT_FALSE(mounts);
  EXPECT_NE(mounts.error().hint.find("needs /proc"), std::string::npos) << mounts.error().hint;
}

}  // namespace
}  // namespace corral::host

// SPDX-License-Identifier: Apache-2.0
// Which grants leave everything open but the refused nodes, and that the kernel agrees.
#include "isolate/landlock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "in_child.h"
#include "must_work.h"

namespace corral::isolate {
namespace {

namespace fs = std::filesystem;

// A tree of plain files: which file stands for a node does not matter to Landlock.
class Tree : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/corral-landlock-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern), nullptr);
    top_ = pattern;
  }
  void TearDown() override { fs::remove_all(top_); }

  std::string at(std::string_view path) const { return top_ + std::string(path); }

  void file(std::string_view path) const {
    fs::create_directories(fs::path(at(path)).parent_path());
    std::ofstream(at(path)) << "x";
  }

  // Paths of the grants below the tree, sorted; "(r)" marks the read-only ones.
  std::vector<std::string> grants(std::vector<std::string> refused,
                                  std::vector<std::string> read_only = {}) const {
    for (std::string& path : refused) path = at(path);
    for (std::string& path : read_only) path = at(path);
    const auto found = landlock_grants({.refused = refused, .read_only = read_only, .top = top_});
    EXPECT_TRUE(found) << found.error().what;
    std::vector<std::string> paths;
    for (const Grant& grant : found.value_or(std::vector<Grant>{}))
      paths.push_back(grant.path.substr(top_.size()) + (grant.read_only ? " (r)" : ""));
    std::ranges::sort(paths);
    return paths;
  }

  std::string top_;
};

using Paths = std::vector<std::string>;

TEST_F(Tree, siblings_of_a_refused_node_are_granted_one_by_one) {
  file("/dev/a");
  file("/dev/b");
  file("/dev/shm/x");
  file("/home/user/y");
  EXPECT_EQ(grants({"/dev/a"}), (Paths{"/dev/b", "/dev/shm", "/home"}));
}

TEST_F(Tree, a_node_at_any_depth_has_its_whole_way_listed) {
  file("/dev/caps/1");
  file("/dev/caps/2");
  file("/dev/zero");
  file("/etc/passwd");
  EXPECT_EQ(grants({"/dev/caps/1"}), (Paths{"/dev/caps/2", "/dev/zero", "/etc"}));
}

TEST_F(Tree, a_node_that_does_not_exist_yet_keeps_its_folder_from_a_grant) {
  file("/dev/zero");
  file("/etc/passwd");
  EXPECT_EQ(grants({"/dev/later"}), (Paths{"/dev/zero", "/etc"}));
}

TEST_F(Tree, a_second_name_of_the_inode_is_not_granted) {
  file("/dev/a");
  file("/dev/b");
  fs::create_hard_link(at("/dev/a"), at("/dev/a2"));
  EXPECT_EQ(grants({"/dev/a"}), (Paths{"/dev/b"}));
}

TEST_F(Tree, another_node_of_the_number_beside_it_is_not_granted) {
  CORRAL_NEEDS("root", ::geteuid() == 0, "making nodes needs root");
  fs::create_directories(at("/dev"));
  for (const char* name : {"/dev/a", "/dev/a2"})
    ASSERT_EQ(::mknod(at(name).c_str(), S_IFCHR | 0600, makedev(1, 7)), 0);
  ASSERT_EQ(::mknod(at("/dev/b").c_str(), S_IFCHR | 0600, makedev(1, 5)), 0);
  ASSERT_EQ(::mknod(at("/dev/c").c_str(), S_IFBLK | 0600, makedev(1, 7)), 0);
  EXPECT_EQ(grants({"/dev/a"}), (Paths{"/dev/b", "/dev/c"}));
}

TEST_F(Tree, a_folder_mounted_inside_itself_gives_no_grant_to_what_is_above_the_node) {
  CORRAL_NEEDS("root", ::geteuid() == 0, "mounting needs root");
  file("/dev/a");
  file("/dev/b");
  file("/srv/x");
  fs::create_directories(at("/mnt/again"));
  // /mnt/again shows the whole tree: /mnt/again/mnt is the inode of /mnt, an ancestor of
  // /mnt/again/dev/a, and a rule on it would hold for all below. The folder under the mount point
  // may have one: the kernel passes over it.
  const int outcome = in_child([&] {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount(top_.c_str(), at("/mnt/again").c_str(), nullptr, MS_BIND, nullptr) != 0)
      return 10;
    const Paths found = grants({"/dev/a", "/mnt/again/dev/a"});
    return found == Paths{"/dev/b", "/mnt/again/dev/b", "/mnt/again/mnt/again", "/mnt/again/srv",
                          "/srv"}
               ? 0
               : 1;
  });
  EXPECT_EQ(outcome, 0);
}

TEST_F(Tree, symbolic_links_need_no_grant) {
  file("/dev/a");
  file("/usr/bin/x");
  fs::create_symlink("usr/bin", at("/bin"));
  EXPECT_EQ(grants({"/dev/a"}), (Paths{"/usr"}));
}

TEST_F(Tree, read_only_hierarchies_are_found_below_listed_folders) {
  file("/dev/a");
  file("/sys/fs/cgroup/procs");
  file("/sys/fs/other/x");
  file("/sys/kernel/y");
  EXPECT_EQ(grants({"/dev/a"}, {"/sys/fs/cgroup"}),
            (Paths{"/sys/fs/cgroup (r)", "/sys/fs/other", "/sys/kernel"}));
}

TEST_F(Tree, a_folder_that_cannot_be_listed_is_an_error) {
  file("/dev/a");
  const auto found =
      landlock_grants({.refused = {at("/dev/a")}, .read_only = {}, .top = at("/none")});
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().what.find("/none"), std::string::npos);
}

TEST_F(Tree, the_kernel_refuses_the_node_and_nothing_else) {
  CORRAL_NEEDS("landlock", landlock_abi() > 0, "this kernel has no Landlock");
  file("/box/refused");
  file("/box/other");
  file("/elsewhere/file");
  LandlockRules rules;
  rules.refused = {at("/box/refused")};
  const int outcome = in_child([&] {
    const auto ruleset = build_landlock(rules, landlock_abi());
    if (!ruleset || ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 10;
    if (!enter_landlock(ruleset->get())) return 11;
    if (::open(at("/box/refused").c_str(), O_RDONLY) >= 0 || errno != EACCES) return 1;
    if (::open(at("/box/refused").c_str(), O_WRONLY) >= 0 || errno != EACCES) return 2;
    if (::open(at("/box/other").c_str(), O_RDWR) < 0) return 3;
    if (::open(at("/elsewhere/new").c_str(), O_WRONLY | O_CREAT, 0600) < 0) return 4;
    if (::rename(at("/elsewhere/new").c_str(), (top_ + "/elsewhere/moved").c_str()) != 0) return 5;
    if (::open("/dev/null", O_RDWR) < 0) return 6;
    return 0;
  });
  EXPECT_EQ(outcome, 0);
}

TEST_F(Tree, read_only_means_readable) {
  CORRAL_NEEDS("landlock", landlock_abi() > 0, "this kernel has no Landlock");
  file("/box/refused");
  file("/group/procs");
  LandlockRules rules;
  rules.refused = {at("/box/refused")};
  rules.read_only = {at("/group")};
  const int outcome = in_child([&] {
    const auto ruleset = build_landlock(rules, landlock_abi());
    if (!ruleset || ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 10;
    if (!enter_landlock(ruleset->get())) return 11;
    if (::open(at("/group/procs").c_str(), O_RDONLY) < 0) return 1;
    if (::open(at("/group/procs").c_str(), O_WRONLY) >= 0 || errno != EACCES) return 2;
    return 0;
  });
  EXPECT_EQ(outcome, 0);
}

TEST_F(Tree, device_nodes_are_made_nowhere) {
  CORRAL_NEEDS("landlock", landlock_abi() > 0, "this kernel has no Landlock");
  CORRAL_NEEDS("root", ::geteuid() == 0, "making nodes needs root");
  file("/box/refused");
  file("/elsewhere/file");
  LandlockRules rules;
  rules.refused = {at("/box/refused")};
  const int outcome = in_child([&] {
    const auto ruleset = build_landlock(rules, landlock_abi());
    if (!ruleset || !enter_landlock(ruleset->get())) return 10;
    if (::mknod(at("/elsewhere/c").c_str(), S_IFCHR | 0600, 0x107) == 0 || errno != EACCES)
      return 1;
    if (::mknod(at("/elsewhere/b").c_str(), S_IFBLK | 0600, 0x107) == 0 || errno != EACCES)
      return 2;
    return ::mkfifo(at("/elsewhere/p").c_str(), 0600) == 0 ? 0 : 3;
  });
  EXPECT_EQ(outcome, 0);
}

TEST(landlock, older_abis_build_too) {
  CORRAL_NEEDS("landlock", landlock_abi() > 0, "this kernel has no Landlock");
  LandlockRules rules;
  rules.refused = {"/dev/full"};
  for (unsigned abi = 1; abi <= landlock_abi(); ++abi)
    EXPECT_TRUE(build_landlock(rules, abi)) << "ABI " << abi;
}

TEST(landlock, a_scope_refuses_no_file) {
  CORRAL_NEEDS("landlock", landlock_abi() >= 6, "Landlock scopes need ABI 6");
  const int outcome = in_child([] {
    const auto ruleset = build_landlock_scope();
    if (!ruleset || ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 10;
    if (!enter_landlock(ruleset->get())) return 11;
    if (::open("/dev/full", O_RDWR) < 0) return 1;
    if (::kill(::getppid(), 0) == 0 || errno != EPERM) return 2;
    return 0;
  });
  EXPECT_EQ(outcome, 0);
}

}  // namespace
}  // namespace corral::isolate

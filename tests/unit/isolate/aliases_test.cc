// SPDX-License-Identifier: Apache-2.0
// Further names of a device are found, and folders that programs need are recognised.
#include "isolate/aliases.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "host/root.h"
#include "in_child.h"
#include "must_work.h"

namespace corral::isolate {
namespace {

const Node kFull{.path = "/dev/full", .type = Node::Type::character, .major = 1, .minor = 7};

bool contains(const std::vector<std::string>& list, const std::string& value) {
  return std::ranges::find(list, value) != list.end();
}

bool own_mounts() {
  return ::unshare(CLONE_NEWNS) == 0 &&
         ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("tmpfs", "/tmp", "tmpfs", 0, nullptr) == 0;
}

TEST(aliases, a_second_mount_of_dev_is_found) {
  CORRAL_NEEDS("root", ::geteuid() == 0, "mounting needs root");
  EXPECT_EQ(in_child([] {
              if (!own_mounts() || ::mkdir("/tmp/dev", 0755) != 0 ||
                  ::mount("/dev", "/tmp/dev", nullptr, MS_BIND, nullptr) != 0)
                return 10;
              const auto mounts = host::read_mountinfo(host::Root());
              if (!mounts) return 11;
              if (!contains(mount_names("/dev/full", *mounts), "/tmp/dev/full")) return 1;
              // Hidden by a mount above it: not a name any more.
              if (::mount("tmpfs", "/tmp/dev", "tmpfs", 0, nullptr) != 0) return 12;
              const auto again = host::read_mountinfo(host::Root());
              return contains(mount_names("/dev/full", *again), "/tmp/dev/full") ? 2 : 0;
            }),
            0);
}

TEST(aliases, a_second_node_is_found_in_dev_and_elsewhere) {
  CORRAL_NEEDS("root", ::geteuid() == 0, "making nodes needs root");
  EXPECT_EQ(in_child([] {
              if (!own_mounts()) return 10;
              std::filesystem::create_directories("/tmp/box/dev");
              std::filesystem::create_directories("/dev/shm/corral-test/deep");
              const std::string here = "/tmp/box/dev/second";
              const std::string shm = "/dev/shm/corral-test/deep/second";
              ::mknod(here.c_str(), S_IFCHR | 0600, makedev(1, 7));
              ::mknod(shm.c_str(), S_IFCHR | 0600, makedev(1, 7));
              ::mknod("/tmp/other", S_IFCHR | 0600, makedev(1, 5));
              ::mknod("/tmp/block", S_IFBLK | 0600, makedev(1, 7));
              const auto mounts = host::read_mountinfo(host::Root());
              const SecondNodes found = find_second_nodes(std::span(&kFull, 1), *mounts);
              std::filesystem::remove_all("/dev/shm/corral-test");
              if (!contains(found.paths[0], here)) return 1;
              if (!contains(found.paths[0], shm)) return 2;
              if (contains(found.paths[0], "/tmp/other")) return 3;
              if (contains(found.paths[0], "/tmp/block")) return 4;
              if (contains(found.paths[0], "/dev/full")) return 5;
              return 0;
            }),
            0);
}

TEST(aliases, a_mount_without_devices_is_not_searched) {
  CORRAL_NEEDS("root", ::geteuid() == 0, "making nodes needs root");
  EXPECT_EQ(in_child([] {
              if (!own_mounts()) return 10;
              ::mknod("/tmp/second", S_IFCHR | 0600, makedev(1, 7));
              if (::mount(nullptr, "/tmp", nullptr, MS_REMOUNT | MS_NODEV, nullptr) != 0) return 11;
              const auto mounts = host::read_mountinfo(host::Root());
              const SecondNodes found = find_second_nodes(std::span(&kFull, 1), *mounts);
              return contains(found.paths[0], "/tmp/second") ? 1 : 0;
            }),
            0);
}

TEST(aliases, folders_that_programs_write_to_are_recognised) {
  EXPECT_EQ(shared_folder_above("/tmp/node"), "/tmp");
  EXPECT_EQ(shared_folder_above("/tmp/a/b/node"), "/tmp");
  EXPECT_EQ(shared_folder_above("/dev/shm/node"), "/dev/shm");
  EXPECT_EQ(shared_folder_above("/dev/nvidia0"), "");
  EXPECT_EQ(in_child([] {
              ::setenv("HOME", "/usr/share", 1);
              return shared_folder_above("/usr/node") == "/usr" ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace corral::isolate

// SPDX-License-Identifier: Apache-2.0
// Mounts of the job's own: what they cover, that they cannot be taken off, and why they fail.
#include "isolate/mount.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/fd.h"
#include "base/file.h"
#include "in_child.h"
#include "isolate/apply.h"
#include "isolate/landlock.h"
#include "must_work.h"

namespace corral::isolate {
namespace {

constexpr uid_t kUser = 65534;

// Both kinds of person that this machine can show: root as root, and a user either way.
std::vector<bool> people() {
  return ::geteuid() == 0 ? std::vector{false, true} : std::vector{true};
}

bool become(bool user) {
  return !user || ::geteuid() != 0 || (::setgid(kUser) == 0 && ::setuid(kUser) == 0);
}

bool opens_as_full(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status{};
  return fd && ::fstat(fd.get(), &status) == 0 && status.st_rdev == makedev(1, 7);
}

// Every way to take the cover off that needs a capability here or in a namespace of one's own.
bool can_uncover(const std::string& path) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (attempt == 1 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    if (::umount2(path.c_str(), 0) == 0 || ::umount2(path.c_str(), MNT_DETACH) == 0) return true;
    if (::umount2("/dev", MNT_DETACH) == 0 && attempt == 0) return true;
    if (::mount("/dev", "/mnt", nullptr, MS_BIND, nullptr) == 0 && opens_as_full("/mnt/full"))
      return true;
  }
  return opens_as_full(path);
}

TEST(mount, a_cover_lies_over_the_node_and_cannot_be_taken_off) {
  for (const bool user : people()) {
    CORRAL_NEEDS("userns", !user || try_covered_mounts(true), "no user namespaces here");
    EXPECT_EQ(in_child([&] {
                if (!become(user)) return 10;
                const uid_t uid = ::geteuid();
                const gid_t gid = ::getegid();
                if (!enter_covered_mounts(
                        {.nodes = {"/dev/full"}, .driver_params = {}, .user_namespaces = user}))
                  return 11;
                if (!user && !drop_mount_rights()) return 12;
                if (::geteuid() != uid || ::getegid() != gid) return 1;
                if (opens_as_full("/dev/full")) return 2;
                return can_uncover("/dev/full") ? 3 : 0;
              }),
              0)
        << (user ? "as a user" : "as root");
  }
  EXPECT_TRUE(opens_as_full("/dev/full")) << "it shows outside";
}

// The kernel takes the mounts of a namespace apart when its last process leaves, and nothing stops
// a process from entering a user namespace of its own.
TEST(mount, a_cover_outlives_its_namespace) {
  for (const bool user : people()) {
    CORRAL_NEEDS("userns", try_covered_mounts(user), "no user namespaces here");
    EXPECT_EQ(in_child([&] {
                if (!become(user)) return 10;
                if (!enter_covered_mounts(
                        {.nodes = {"/dev/full"}, .driver_params = {}, .user_namespaces = user}))
                  return 11;
                if (!user && !drop_mount_rights()) return 12;
                const Fd folder(::open("/dev", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
                if (!folder || ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return 13;
                const Fd node(::openat(folder.get(), "full", O_RDONLY | O_CLOEXEC));
                struct stat status{};
                if (!node || ::fstat(node.get(), &status) != 0) return 14;
                return is_cover(status) ? 0 : 1;
              }),
              0)
        << (user ? "as a user" : "as root");
  }
}

TEST(mount, the_working_folder_stays_the_same) {
  for (const bool user : people()) {
    CORRAL_NEEDS("userns", !user || try_covered_mounts(true), "no user namespaces here");
    EXPECT_EQ(in_child([&] {
                if (!become(user) || ::chdir("/usr/bin") != 0) return 10;
                if (!enter_covered_mounts(
                        {.nodes = {"/dev/full"}, .driver_params = {}, .user_namespaces = user}))
                  return 11;
                std::error_code error;
                return std::filesystem::current_path(error) == "/usr/bin" ? 0 : 1;
              }),
              0)
        << (user ? "as a user" : "as root");
  }
}

TEST(mount, a_plain_file_can_be_covered_too) {
  const std::string file = "/tmp/corral-mount-" + std::to_string(::getpid());
  ASSERT_TRUE(write_file(file, "node"));
  const bool user = ::geteuid() != 0;
  CORRAL_NEEDS("userns", try_covered_mounts(user), "no mounts here");
  EXPECT_EQ(
      in_child([&] {
        if (!enter_covered_mounts({.nodes = {file}, .driver_params = {}, .user_namespaces = user}))
          return 10;
        struct stat status{};
        return ::stat(file.c_str(), &status) == 0 && is_cover(status) ? 0 : 1;
      }),
      0);
  ::unlink(file.c_str());
}

// systemd shares all mounts among namespaces, this machine may not: the test does it itself.
TEST(mount, covers_and_later_mounts_stay_on_their_side) {
  CORRAL_NEEDS("root", ::geteuid() == 0, "shared mounts need root");
  EXPECT_EQ(in_child([] {
              if (::unshare(CLONE_NEWNS) != 0 ||
                  ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
                  ::mount(nullptr, "/", nullptr, MS_REC | MS_SHARED, nullptr) != 0)
                return 10;
              int go[2];
              int done[2];
              if (::pipe(go) != 0 || ::pipe(done) != 0) return 11;
              const pid_t job = ::fork();
              if (job == 0) {
                char byte = 0;
                const bool covered =
                    enter_covered_mounts(
                        {.nodes = {"/dev/full"}, .driver_params = {}, .user_namespaces = false})
                        .has_value();
                if (!covered || ::write(done[1], "x", 1) != 1 || ::read(go[0], &byte, 1) != 1)
                  ::_exit(12);
                // What was mounted outside meanwhile.
                ::_exit(::access("/mnt/null", F_OK) == 0 ? 2 : 0);
              }
              char byte = 0;
              if (::read(done[0], &byte, 1) != 1) return 13;
              const bool shows_outside = !opens_as_full("/dev/full");
              if (::mount("/dev", "/mnt", nullptr, MS_BIND, nullptr) != 0) return 14;
              if (::write(go[1], "x", 1) != 1) return 15;
              int status = 0;
              ::waitpid(job, &status, 0);
              if (shows_outside) return 1;
              return WIFEXITED(status) ? WEXITSTATUS(status) : 16;
            }),
            0);
}

TEST(mount, the_driver_is_seen_not_to_want_its_nodes_made) {
  EXPECT_EQ(
      without_device_files("ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDmaRemap: 0\n"),
      "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 0\nDmaRemap: 0\n");
  const std::string file = "/tmp/corral-params-" + std::to_string(::getpid());
  ASSERT_TRUE(write_file(file, "A: 1\nModifyDeviceFiles: 1\n"));
  const bool user = ::geteuid() != 0;
  CORRAL_NEEDS("userns", try_covered_mounts(user), "no mounts here");
  EXPECT_EQ(
      in_child([&] {
        if (!enter_covered_mounts({.nodes = {}, .driver_params = file, .user_namespaces = user}))
          return 10;
        if (read_file(file).value_or("") != "A: 1\nModifyDeviceFiles: 0\n") return 1;
        return ::access("/dev/null", F_OK) == 0 ? 0 : 2;
      }),
      0);
  EXPECT_EQ(read_file(file).value_or(""), "A: 1\nModifyDeviceFiles: 1\n");
  ::unlink(file.c_str());
}

TEST(mount, a_node_that_cannot_be_covered_is_an_error_that_names_it) {
  const bool user = ::geteuid() != 0;
  CORRAL_NEEDS("userns", try_covered_mounts(user), "no mounts here");
  EXPECT_EQ(
      in_child([&] {
        const auto entered = enter_covered_mounts(
            {.nodes = {"/dev/corral-is-not-here"}, .driver_params = {}, .user_namespaces = user});
        return !entered && entered.error().what.find("/dev/corral-is-not-here") != std::string::npos
                   ? 0
                   : 1;
      }),
      0);
}

TEST(mount, trouble_is_explained_by_what_the_host_has_set) {
  const Error refused{"write /proc/self/uid_map: Operation not permitted", "", EPERM};
  const auto explained = [&](const NamespaceSettings& settings, bool user = true) {
    const Error error = explain_mount_trouble(refused, settings, user);
    return error.what + " | " + error.hint;
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(explained({.apparmor_restriction = 1}), "AppArmor"));
  EXPECT_TRUE(has(explained({.apparmor_restriction = 1}), "profile for corral"));
  EXPECT_FALSE(has(explained({.apparmor_restriction = 0}), "AppArmor"));
  EXPECT_FALSE(has(explained({.apparmor_restriction = 1}, false), "AppArmor"));
  EXPECT_TRUE(has(explained({.max_user_namespaces = 0}), "user.max_user_namespaces is 0"));
  EXPECT_TRUE(has(explained({.unprivileged_clone = 0}), "unprivileged_userns_clone is 0"));
  EXPECT_TRUE(has(explained({.filtered = true}), "seccomp"));
  EXPECT_TRUE(has(explained({.filtered = true}), "add mount to the outer one"));
  EXPECT_TRUE(has(explained({}), "outer confinement"));
  EXPECT_FALSE(has(explained({}), "CAP_SYS_CHROOT"));
  EXPECT_TRUE(has(explained({}, false), "CAP_SYS_CHROOT"));
  // Root's covers want a user namespace too.
  const auto without_one = explain_mount_trouble({"unshare: No space left on device", "", ENOSPC},
                                                 {.max_user_namespaces = 0}, false);
  EXPECT_TRUE(has(without_one.what, "user.max_user_namespaces is 0")) << without_one.what;
}

TEST(mount, settings_are_read_where_the_kernel_has_them) {
  const std::string root = "/tmp/corral-settings-" + std::to_string(::getpid());
  std::filesystem::create_directories(root + "/proc/sys/kernel");
  std::filesystem::create_directories(root + "/proc/sys/user");
  std::filesystem::create_directories(root + "/proc/self");
  ASSERT_TRUE(write_file(root + "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n"));
  ASSERT_TRUE(write_file(root + "/proc/sys/user/max_user_namespaces", "96365\n"));
  ASSERT_TRUE(
      write_file(root + "/proc/self/status", "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n"));
  const NamespaceSettings settings = read_namespace_settings(host::Root(root));
  std::filesystem::remove_all(root);
  EXPECT_EQ(settings.apparmor_restriction, 1);
  EXPECT_EQ(settings.max_user_namespaces, 96365);
  EXPECT_EQ(settings.unprivileged_clone, std::nullopt);
  EXPECT_TRUE(settings.filtered);
}

TEST(mount, a_kernel_that_refuses_is_found_out_before_the_start) {
  CORRAL_NEEDS("landlock", landlock_abi() > 0, "this kernel has no Landlock");
  EXPECT_EQ(
      in_child([] {
        Request request;
        request.refuse_paths = {"/dev/full"};
        request.methods = {Method::landlock};
        const auto outer = plan_for(request);
        if (!outer) return 10;
        const auto prepared = prepare(*outer);
        if (!prepared || !enter(*prepared)) return 11;
        request.refuse_paths = {"/dev/zero"};
        request.methods = {Method::mount};
        const auto inner = plan_for(request);
        return !inner && inner.error().what.find("mount is not available") != std::string::npos ? 0
                                                                                                : 1;
      }),
      0);
}

// 0: confined by the methods, and by them again inside.
int confined_twice(std::vector<Method> methods, bool user) {
  if (!become(user)) return 10;
  Request request;
  request.refuse_paths = {"/dev/full"};
  request.methods = std::move(methods);
  const auto plan = plan_for(request);
  if (!plan) return 11;
  const auto prepared = prepare(*plan);
  if (!prepared) return 12;
  if (const auto entered = enter(*prepared); !entered) return 13;
  if (opens_as_full("/dev/full")) return 1;
  if (!Fd(::open("/dev/null", O_RDWR | O_CLOEXEC))) return 2;
  request.methods = {Method::automatic};
  const auto inner = plan_for(request);
  if (!inner || inner->enforced != "existing") return 3;
  const auto nothing = prepare(*inner);
  return nothing && enter(*nothing) ? 0 : 4;
}

// The names and rules of what lies over a node are those of /dev/null, which must not suffer.
TEST(mount, landlock_inside_leaves_the_null_device_alone) {
  CORRAL_NEEDS("landlock", landlock_abi() > 0, "this kernel has no Landlock");
  CORRAL_NEEDS("userns", try_covered_mounts(::geteuid() != 0), "no mounts here");
  EXPECT_EQ(in_child([] {
              Request request;
              request.refuse_paths = {"/dev/full"};
              for (const Method method : {Method::mount, Method::landlock}) {
                request.methods = {method};
                const auto plan = plan_for(request);
                if (!plan) return 10;
                const auto prepared = prepare(*plan);
                if (!prepared) return 11;
                if (!enter(*prepared)) return 12;
              }
              if (opens_as_full("/dev/full")) return 2;
              return Fd(::open("/dev/null", O_RDWR | O_CLOEXEC)) ? 0 : 3;
            }),
            0);
}

TEST(mount, a_layer_below_a_cover_that_does_not_hold_is_found_out) {
  CORRAL_NEEDS("landlock", landlock_abi() > 0, "this kernel has no Landlock");
  CORRAL_NEEDS("userns", try_covered_mounts(::geteuid() != 0), "no mounts here");
  EXPECT_EQ(in_child([] {
              Request request;
              request.refuse_paths = {"/dev/full"};
              request.methods = {Method::mount, Method::landlock};
              const auto plan = plan_for(request);
              if (!plan) return 10;
              auto prepared = prepare(*plan);
              if (!prepared) return 11;
              prepared->landlock_ruleset = {};
              prepared->filter.clear();
              const auto entered = enter(*prepared);
              if (entered) return 1;
              return entered.error().what.find("/dev/full itself") != std::string::npos ? 0 : 2;
            }),
            0);
}

TEST(mount, it_goes_together_with_the_other_methods) {
  CORRAL_NEEDS("landlock", landlock_abi() > 0, "this kernel has no Landlock");
  for (const bool user : people()) {
    CORRAL_NEEDS("userns", !user || try_covered_mounts(true), "no user namespaces here");
    EXPECT_EQ(in_child([&] { return confined_twice({Method::mount}, user); }), 0) << user;
    EXPECT_EQ(in_child([&] { return confined_twice({Method::mount, Method::landlock}, user); }), 0)
        << user;
  }
}

}  // namespace
}  // namespace corral::isolate

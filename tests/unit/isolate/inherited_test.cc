// SPDX-License-Identifier: Apache-2.0
// Which inherited descriptors are closed before exec, and which are not ours to close.
#include "isolate/inherited.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

#include "in_child.h"
#include "isolate/cgroup2.h"

namespace corral::isolate {
namespace {

const RefusedNode kFull{
    .node = {.path = "/dev/full", .type = Node::Type::character, .major = 1, .minor = 7},
    .why = "test"};

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

// What became of a descriptor that `make` opened without O_CLOEXEC.
enum Fate { closed = 0, kept = 1, broken = 2, absent = 3 };

Fate fate(const std::function<int()>& make, bool tight, const RefusedNode& refused = kFull) {
  return static_cast<Fate>(in_child([&] {
    const int fd = make();
    if (fd < 0) return int{absent};
    ::fcntl(fd, F_SETFD, 0);
    if (!close_inherited(std::span(&refused, 1), tight)) return int{broken};
    return is_open(fd) ? int{kept} : int{closed};
  }));
}

int open_node() { return ::open("/dev/full", O_RDWR); }
int open_folder() { return ::open("/", O_RDONLY | O_DIRECTORY); }
int open_path() { return ::open("/etc/passwd", O_PATH); }
int open_namespace() { return ::open("/proc/self/ns/mnt", O_RDONLY); }
int open_proc() { return ::open("/proc/self/mem", O_RDWR); }
int open_file() { return ::open("/etc/passwd", O_RDONLY); }
int open_pidfd() { return static_cast<int>(::syscall(SYS_pidfd_open, ::getppid(), 0)); }
int open_ring() {
  char params[120]{};  // struct io_uring_params
  return static_cast<int>(::syscall(SYS_io_uring_setup, 1, params));
}
int open_pipe() {
  int ends[2];
  return ::pipe(ends) == 0 ? ends[0] : -1;
}

TEST(inherited, the_refused_node_is_closed) {
  EXPECT_EQ(fate(open_node, false), closed);
  EXPECT_EQ(fate(open_node, true), closed);
  EXPECT_EQ(fate([] { return ::open("/dev/full", O_PATH); }, false), closed);
}

TEST(inherited, another_node_of_the_number_is_closed_too) {
  const std::string second = "/tmp/corral-inherited-" + std::to_string(::getpid());
  if (::mknod(second.c_str(), S_IFCHR | 0600, makedev(1, 7)) != 0)
    GTEST_SKIP() << "making nodes needs root";
  EXPECT_EQ(fate([&] { return ::open(second.c_str(), O_RDWR); }, false), closed);
  ::unlink(second.c_str());
}

TEST(inherited, a_block_node_of_the_number_is_another_device) {
  RefusedNode block = kFull;
  block.node.type = Node::Type::block;
  EXPECT_EQ(fate(open_node, false, block), kept);
}

TEST(inherited, rings_and_pidfds_are_closed_always) {
  const Fate ring = fate(open_ring, false);
  EXPECT_TRUE(ring == closed || ring == absent) << ring;
  EXPECT_EQ(fate(open_pidfd, false), closed);
}

TEST(inherited, files_and_pipes_are_kept_always) {
  EXPECT_EQ(fate(open_file, true), kept);
  EXPECT_EQ(fate(open_pipe, true), kept);
  EXPECT_EQ(fate([] { return ::open("/dev/null", O_RDWR); }, true), kept);
}

TEST(inherited, ways_to_look_outside_are_closed_when_tight) {
  for (const auto& make : {open_folder, open_path, open_namespace, open_proc}) {
    EXPECT_EQ(fate(make, false), kept);
    EXPECT_EQ(fate(make, true), closed);
  }
}

TEST(inherited, a_file_that_stands_for_a_node_is_closed_by_its_inode) {
  const RefusedNode file{.node = {.path = "/etc/passwd", .type = Node::Type::file}, .why = "test"};
  EXPECT_EQ(fate(open_file, false, file), closed);
  EXPECT_EQ(fate([] { return ::open("/etc/group", O_RDONLY); }, false, file), kept);
}

TEST(inherited, what_exec_closes_is_left_to_it) {
  EXPECT_EQ(in_child([] {
              const int fd = ::open("/dev/full", O_RDWR | O_CLOEXEC);
              if (!close_inherited(std::span(&kFull, 1), true)) return 1;
              return is_open(fd) ? 0 : 2;
            }),
            0);
}

TEST(inherited, standard_streams_get_the_null_device) {
  EXPECT_EQ(in_child([] {
              const int fd = open_node();
              ::dup2(fd, STDIN_FILENO);
              ::close(fd);
              if (!close_inherited(std::span(&kFull, 1), false)) return 1;
              struct stat status{};
              if (::fstat(STDIN_FILENO, &status) != 0) return 2;
              return status.st_rdev == makedev(1, 3) ? 0 : 3;
            }),
            0);
}

TEST(inherited, a_refused_null_device_is_not_replaced_by_itself) {
  const RefusedNode null{
      .node = {.path = "/dev/null", .type = Node::Type::character, .major = 1, .minor = 3},
      .why = "--refuse"};
  EXPECT_EQ(in_child([&] {
              const int fd = ::open("/dev/null", O_RDWR);
              for (const int stream : {STDIN_FILENO, STDOUT_FILENO}) ::dup2(fd, stream);
              ::close(fd);
              if (!close_inherited(std::span(&null, 1), false)) return 1;
              struct stat status{};
              if (::fstat(STDIN_FILENO, &status) != 0 || !S_ISFIFO(status.st_mode)) return 2;
              if (::fstat(STDOUT_FILENO, &status) != 0 || !S_ISFIFO(status.st_mode)) return 3;
              char byte = 0;
              return ::read(STDIN_FILENO, &byte, 1) == 0 ? 0 : 4;
            }),
            0);
}

TEST(inherited, a_userfaultfd_is_closed_when_tight) {
  const auto open_faults = [] { return static_cast<int>(::syscall(SYS_userfaultfd, 1)); };
  if (fate(open_faults, false) == absent) GTEST_SKIP() << "no userfaultfd here";
  EXPECT_EQ(fate(open_faults, false), kept);
  EXPECT_EQ(fate(open_faults, true), closed);
}

TEST(inherited, a_working_folder_that_is_gone_is_an_error) {
  EXPECT_EQ(in_child([] {
              char pattern[] = "/tmp/corral-cwd-XXXXXX";
              if (::mkdtemp(pattern) == nullptr || ::chdir(pattern) != 0) return 1;
              const auto folder = working_folder();
              if (!folder || !enter_again(*folder)) return 2;
              ::rmdir(pattern);
              if (working_folder()) return 3;
              return enter_again(*folder) ? 4 : 0;
            }),
            0);
}

TEST(inherited, another_folder_of_the_same_path_is_not_entered_silently) {
  EXPECT_EQ(in_child([] {
              char pattern[] = "/tmp/corral-cwd-XXXXXX";
              if (::mkdtemp(pattern) == nullptr || ::chdir(pattern) != 0) return 1;
              const std::string path = pattern;
              const auto folder = working_folder();
              if (!folder) return 2;
              if (::rename(pattern, (path + "-old").c_str()) != 0 || ::mkdir(pattern, 0700) != 0)
                return 3;
              const auto entered = enter_again(*folder);
              ::rmdir(pattern);
              ::rmdir((path + "-old").c_str());
              if (entered) return 4;
              return entered.error().what.find(path) == std::string::npos ? 5 : 0;
            }),
            0);
}

}  // namespace
}  // namespace corral::isolate

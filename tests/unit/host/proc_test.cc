// SPDX-License-Identifier: Apache-2.0
// Processes: parsed texts, made-up hosts and this very process.
#include "host/proc.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/fd.h"
#include "fixture_host.h"

namespace corral::host {
namespace {

using namespace std::string_literals;

const Root kLive;

// A stat line whose name and start time are given.
std::string stat_line(int pid, std::string_view comm, int parent, unsigned long long start,
                      char state = 'S') {
  return std::to_string(pid) + " (" + std::string(comm) + ") " + state + " " +
         std::to_string(parent) + " 1 1 0 -1 4194304 1 0 0 0 5 6 0 0 20 0 1 0 " +
         std::to_string(start) + " 1000 200 18446744073709551615 1 1 0 0\n";
}

// A child that sleeps until it is killed with the test.
class Child {
 public:
  Child() : pid_(::fork()) {
    if (pid_ == 0) {
      ::pause();
      ::_exit(0);
    }
  }
  ~Child() { end(); }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

TEST(process_stat, names_may_hold_anything) {
  for (const char* comm : {"python3", "a b", "a) S 1 (b", ") ", "((", "", "tab\tline\n"}) {
    const auto stat = parse_stat(stat_line(42, comm, 7, 123456789012ULL));
    ASSERT_TRUE(stat) << comm << ": " << stat.error().what;
    EXPECT_EQ(*stat, (ProcessStat{42, comm, 'S', 7, 123456789012ULL}));
  }
}

TEST(process_stat, cut_or_foreign_text_is_an_error) {
  const std::string whole = stat_line(42, "python3", 7, 99);
  for (const std::string& text :
       {std::string(), std::string("42"), std::string("42 (python3"), whole.substr(0, 40),
        std::string(") 1 ("), std::string("x (a) S 1 ") + whole})
    EXPECT_FALSE(parse_stat(text)) << text;
}

TEST(process_status, effective_uid_and_namespace_pids) {
  EXPECT_EQ(parse_status("Name:\tx\nUid:\t1000\t0\t0\t0\nNSpid:\t4711\t12\t1\n").value(),
            (ProcessStatus{0, {4711, 12, 1}}));
  EXPECT_EQ(parse_status("Uid:\t1000\t1001\t1000\t1000\n").value(), (ProcessStatus{1001, {}}));
  EXPECT_FALSE(parse_status("Name:\tx\n"));
  EXPECT_FALSE(parse_status("Uid:\t0\t0\t0\t0\nNSpid:\tx\n"));
}

TEST(process_maps, every_file_once_with_its_odd_name) {
  EXPECT_EQ(
      parse_mapped_files("55d0-55d1 r--p 00000000 08:01 131 /usr/bin/python3.11\n"
                         "55d1-55d2 r-xp 00001000 08:01 131 /usr/bin/python3.11\n"
                         "7f00-7f01 rw-p 00000000 00:00 0 \n"
                         "7f02-7f03 rw-p 00000000 00:00 0          [heap]\n"
                         "7f04-7f05 r--p 00000000 08:01 7    /a b/libcuda.so.580.159.04 (deleted)\n"
                         "7f06-7f07 r--p 00000000 08:01 8    /a\\012b/x\n"
                         "7f08-7f09 r-xp"),
      (std::vector<std::string>{"/usr/bin/python3.11", "/a b/libcuda.so.580.159.04", "/a\nb/x"}));
}

TEST(process_maps, the_driver_is_found_by_its_file_name) {
  EXPECT_EQ(with_basename_prefix({"/usr/lib/libcuda.so.580.159.04", "/libcuda.so/other.so",
                                  "/x/libcudart.so.13", "/run/libcuda.so.1"},
                                 "libcuda.so"),
            (std::vector<std::string>{"/usr/lib/libcuda.so.580.159.04", "/run/libcuda.so.1"}));
}

TEST(process, this_one_is_known) {
  const auto stat = read_stat(kLive, ::getpid()).value();
  EXPECT_EQ(stat.pid, ::getpid());
  EXPECT_EQ(stat.parent, ::getppid());
  EXPECT_GT(stat.start_ticks, 0U);
  EXPECT_EQ(read_status(kLive, ::getpid())->uid, ::geteuid());
  EXPECT_FALSE(read_arguments(kLive, ::getpid())->empty());
  const auto files = mapped_files(kLive, ::getpid()).value();
  EXPECT_FALSE(with_basename_prefix(files, "libc.so").empty());
  EXPECT_EQ(environment_variable(kLive, ::getpid(), "CORRAL_NOT_SET").value(), std::nullopt);
}

TEST(process, a_missing_one_is_an_error_everywhere) {
  constexpr pid_t kNone = 0x3fffffff;
  EXPECT_FALSE(read_stat(kLive, kNone));
  EXPECT_FALSE(read_status(kLive, kNone));
  EXPECT_FALSE(read_arguments(kLive, kNone));
  EXPECT_FALSE(describe_process(kLive, kNone));
  EXPECT_FALSE(mapped_files(kLive, kNone));
  EXPECT_FALSE(open_devices(kLive, kNone));
  EXPECT_FALSE(environment_variable(kLive, kNone, "PATH"));
}

TEST(process, unreadable_files_are_errors_and_not_empty_answers) {
  const tests::MadeHost host;
  for (const char* name : {"stat", "status", "cmdline", "maps", "environ"})
    host.write_unreadable(std::string("/proc/42/") + name);
  EXPECT_FALSE(read_stat(host.root(), 42));
  EXPECT_FALSE(read_status(host.root(), 42));
  EXPECT_FALSE(describe_process(host.root(), 42));
  EXPECT_FALSE(mapped_files(host.root(), 42));
  EXPECT_FALSE(environment_variable(host.root(), 42, "PATH"));
  EXPECT_FALSE(open_devices(host.root(), 42));
  EXPECT_FALSE(descendants(host.root(), 1)) << "a process that may not be looked at";
}

TEST(process, one_that_is_ending_has_unknown_maps_and_variables) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(read_stat(kLive, pid)->state, 'Z');
  EXPECT_FALSE(mapped_files(kLive, pid));
  EXPECT_FALSE(environment_variable(kLive, pid, "PATH"));
  ::waitpid(pid, nullptr, 0);
}

TEST(process, environment_is_read_by_the_whole_name) {
  const tests::MadeHost host;
  host.write("/proc/42/environ",
             "XCUDA_VISIBLE_DEVICES=9\0CUDA_VISIBLE=8\0CUDA_VISIBLE_DEVICES=\0A=b=c\0"s);
  EXPECT_EQ(environment_variable(host.root(), 42, "CUDA_VISIBLE_DEVICES").value(), "");
  EXPECT_EQ(environment_variable(host.root(), 42, "A").value(), "b=c");
  EXPECT_EQ(environment_variable(host.root(), 42, "CUDA_VISIBLE_DEVICE").value(), std::nullopt);
}

TEST(process, description_is_safe_for_a_terminal_and_of_bounded_length) {
  const tests::MadeHost host;
  host.write("/proc/42/cmdline", "python3\0a b.py\0\033[2J\0"s);
  EXPECT_EQ(describe_process(host.root(), 42).value(), "python3 'a b.py' '\\x1b[2J'");
  host.write("/proc/43/cmdline", std::string(200000, 'x'));
  EXPECT_LE(describe_process(host.root(), 43, 50)->size(), 50U);
  host.write("/proc/44/cmdline", std::string(2000, '\303'));
  EXPECT_LE(describe_process(host.root(), 44, 50)->size(), 50U);
  host.write("/proc/45/cmdline", "");
  host.write("/proc/45/stat", stat_line(45, "kworker/0:1", 2, 5));
  EXPECT_EQ(describe_process(host.root(), 45).value(), "[kworker/0:1]");
}

TEST(process, open_devices_are_found_with_their_number) {
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const Fd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const auto devices = open_devices(kLive, ::getpid()).value();
  const auto at = [&](int fd) { return std::ranges::find(devices, fd, &OpenDevice::fd); };
  ASSERT_NE(at(null.get()), devices.end());
  EXPECT_EQ(at(null.get())->path, "/dev/null");
  EXPECT_EQ(at(null.get())->number, makedev(1, 3));
  EXPECT_FALSE(at(null.get())->block);
  EXPECT_EQ(at(file.get()), devices.end());
}

TEST(process, children_and_their_children_are_found) {
  const tests::MadeHost host;
  const auto add = [&](int pid, int parent) {
    host.write("/proc/" + std::to_string(pid) + "/stat", stat_line(pid, "x", parent, 1));
  };
  add(10, 1);
  add(11, 10);
  add(12, 11);
  add(13, 10);
  add(20, 1);
  host.write("/proc/uptime", "1 1\n");
  host.write("/proc/12x/stat", "");
  EXPECT_EQ(list_pids(host.root()).value(), (std::vector<pid_t>{10, 11, 12, 13, 20}));
  EXPECT_EQ(children(host.root(), 10).value(), (std::vector<pid_t>{11, 13}));
  EXPECT_EQ(descendants(host.root(), 10).value(), (std::vector<pid_t>{11, 12, 13}));
  EXPECT_TRUE(descendants(host.root(), 12)->empty());
}

TEST(process, the_kernels_own_lists_of_children_are_used_for_every_thread) {
  const tests::MadeHost host;
  host.write("/proc/10/task/10/children", "13 11 ");
  host.write("/proc/10/task/19/children", "12 ");
  host.write("/proc/11/task/11/children", "14 ");
  for (const char* pid : {"12", "13", "14"})
    host.write(std::string("/proc/") + pid + "/task/" + pid + "/children", "");
  EXPECT_EQ(children(host.root(), 10).value(), (std::vector<pid_t>{11, 12, 13}));
  EXPECT_EQ(descendants(host.root(), 10).value(), (std::vector<pid_t>{11, 12, 13, 14}));
}

TEST(process, a_ring_of_parents_ends) {
  const tests::MadeHost host;
  host.write("/proc/10/stat", stat_line(10, "x", 11, 1));
  host.write("/proc/11/stat", stat_line(11, "x", 10, 1));
  EXPECT_EQ(descendants(host.root(), 10).value(), (std::vector<pid_t>{11}));
}

TEST(process, live_children_are_found) {
  Child child;
  const auto found = children(kLive, ::getpid()).value();
  EXPECT_NE(std::ranges::find(found, child.pid()), found.end());
}

}  // namespace
}  // namespace corral::host

// SPDX-License-Identifier: Apache-2.0
// Whose processes are on a GPU, on made-up hosts.
#include "sample/processes.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "../host/fixture_host.h"

namespace corral::sample {
namespace {

using gpu::NvmlFailure;
using gpu::NvmlProcess;
using gpu::NvmlReturn;
using List = gpu::NvmlResult<std::vector<NvmlProcess>>;

constexpr pid_t kCorral = 100;
const List kNoGraphics = std::unexpected(NvmlFailure{NvmlReturn::not_supported, ""});

class Processes : public testing::Test {
 protected:
  void add(pid_t pid, pid_t parent, std::string_view command, int start = 1) {
    const std::string folder = "/proc/" + std::to_string(pid);
    host_.write(folder + "/stat", std::to_string(pid) + " (x) S " + std::to_string(parent) +
                                      " 1 1 0 -1 0 1 0 0 0 5 6 0 0 20 0 1 0 " +
                                      std::to_string(start) + " 1 1\n");
    host_.write(folder + "/cmdline", std::string(command) + '\0');
  }
  void remove(pid_t pid) {
    std::filesystem::remove_all(host_.root().path("/proc/" + std::to_string(pid)));
  }
  ProcessBook book(bool pids_are_ours = true) {
    return ProcessBook(host_.root(), kCorral, {}, pids_are_ours);
  }

  tests::MadeHost host_;
};

TEST_F(Processes, of_the_job_descend_from_corral) {
  add(kCorral, 1, "corral");
  add(101, kCorral, "python3");
  add(102, 101, "worker");
  add(200, 1, "other");
  ProcessBook known = book();
  GpuProcesses on_gpu;
  on_gpu.add(List({{101, 10, {}, {}}, {102, 20, {}, {}}, {200, 40, {}, {}}}), kNoGraphics, known);
  const auto processes = on_gpu.processes();
  ASSERT_EQ(processes.size(), 3U);
  EXPECT_TRUE(processes[0].of_job);
  EXPECT_TRUE(processes[1].of_job);
  EXPECT_EQ(processes[1].command, "worker");
  EXPECT_FALSE(processes[2].of_job);
  EXPECT_EQ(on_gpu.job_memory_peak_bytes(), 30U);
  EXPECT_EQ(on_gpu.known(known), true);
}

TEST_F(Processes, that_were_below_corral_before_the_job_are_not_of_it_nor_are_theirs) {
  add(101, kCorral, "before", 7);
  add(102, 101, "its own");
  add(103, kCorral, "python3");
  host::ProcessStat before;
  before.pid = 101;
  before.start_ticks = 7;
  ProcessBook known(host_.root(), kCorral, {before}, true);
  EXPECT_FALSE(known.find(101)->of_job);
  EXPECT_FALSE(known.find(102)->of_job);
  EXPECT_TRUE(known.find(103)->of_job);
  add(101, kCorral, "the pid again", 8);
  EXPECT_TRUE(known.find(101)->of_job);
}

TEST_F(Processes, peak_is_of_one_moment) {
  add(101, kCorral, "a");
  add(102, kCorral, "b");
  ProcessBook known = book();
  GpuProcesses on_gpu;
  on_gpu.add(List({{101, 100, {}, {}}}), kNoGraphics, known);
  on_gpu.add(List({{101, 10, {}, {}}, {102, 50, {}, {}}}), kNoGraphics, known);
  EXPECT_EQ(on_gpu.job_memory_peak_bytes(), 100U);
  EXPECT_EQ(on_gpu.processes()[0].memory_bytes, 100U);
}

TEST_F(Processes, stay_in_the_list_when_they_are_gone) {
  add(101, kCorral, "a");
  ProcessBook known = book();
  GpuProcesses on_gpu;
  on_gpu.add(List({{101, 1, {}, {}}}), kNoGraphics, known);
  remove(101);
  on_gpu.add(List({{101, 1, {}, {}}}), kNoGraphics, known);
  on_gpu.add(List(std::vector<NvmlProcess>{}), kNoGraphics, known);
  EXPECT_EQ(on_gpu.processes().size(), 1U);
  EXPECT_EQ(on_gpu.known(known), true) << "a process that has just ended is no stranger";
}

TEST_F(Processes, a_pid_that_comes_again_is_another_process) {
  add(101, kCorral, "first", 1);
  ProcessBook known = book();
  GpuProcesses on_gpu;
  on_gpu.add(List({{101, 1, {}, {}}}), kNoGraphics, known);
  add(101, 1, "second", 2);
  on_gpu.add(List({{101, 1, {}, {}}}), kNoGraphics, known);
  const auto processes = on_gpu.processes();
  ASSERT_EQ(processes.size(), 2U);
  EXPECT_EQ(processes[0].command, "first");
  EXPECT_TRUE(processes[0].of_job);
  EXPECT_EQ(processes[1].command, "second");
  EXPECT_FALSE(processes[1].of_job);
}

TEST_F(Processes, in_both_lists_count_once) {
  add(101, kCorral, "a");
  ProcessBook known = book();
  GpuProcesses on_gpu;
  on_gpu.add(List({{101, 10, {}, {}}}), List({{101, 10, {}, {}}}), known);
  EXPECT_EQ(on_gpu.job_memory_peak_bytes(), 10U);
}

TEST_F(Processes, on_several_instances_are_added_up) {
  add(101, kCorral, "a");
  ProcessBook known = book();
  GpuProcesses on_gpu;
  on_gpu.add(List({{101, 10, 1, 0}, {101, 5, 2, 0}}), kNoGraphics, known);
  EXPECT_EQ(on_gpu.job_memory_peak_bytes(), 15U);
}

TEST_F(Processes, of_unknown_memory_make_the_peak_unknown_and_not_zero) {
  add(101, kCorral, "a");
  ProcessBook known = book();
  GpuProcesses on_gpu;
  on_gpu.add(List({{101, {}, {}, {}}}), kNoGraphics, known);
  EXPECT_EQ(on_gpu.processes()[0].memory_bytes, std::nullopt);
  EXPECT_EQ(on_gpu.job_memory_peak_bytes(), std::nullopt);
}

TEST_F(Processes, are_unknown_before_and_after_a_failure) {
  ProcessBook known = book();
  GpuProcesses on_gpu;
  EXPECT_EQ(on_gpu.known(known), std::nullopt);
  on_gpu.add(List(std::vector<NvmlProcess>{}), kNoGraphics, known);
  EXPECT_EQ(on_gpu.known(known), true);
  on_gpu.add(std::unexpected(NvmlFailure{NvmlReturn::no_permission, ""}), kNoGraphics, known);
  EXPECT_EQ(on_gpu.known(known), false);
  EXPECT_EQ(on_gpu.failure(), "no permission");
}

TEST_F(Processes, in_a_container_an_empty_list_is_no_evidence) {
  ProcessBook known = book(false);
  GpuProcesses on_gpu;
  on_gpu.add(List(std::vector<NvmlProcess>{}), kNoGraphics, known);
  EXPECT_EQ(on_gpu.known(known), false);
}

TEST_F(Processes, in_a_container_a_pid_that_only_happens_to_be_ours_is_a_stranger) {
  add(101, kCorral, "sleep");
  ProcessBook known = book(false);
  GpuProcesses on_gpu;
  on_gpu.add(List({{101, 10, {}, {}}}), kNoGraphics, known);
  EXPECT_TRUE(on_gpu.processes().empty());
  EXPECT_EQ(on_gpu.known(known), false);
}

TEST_F(Processes, the_outermost_namespace_is_recognised) {
  std::filesystem::create_directories(host_.root().path("/proc/self/ns"));
  std::filesystem::create_symlink("pid:[4026531836]", host_.root().path("/proc/self/ns/pid"));
  EXPECT_TRUE(book(false).believable());
}

TEST_F(Processes, a_ring_of_parents_is_nobodys_job) {
  add(101, 102, "a");
  add(102, 101, "b");
  ProcessBook known = book();
  EXPECT_FALSE(known.find(101)->of_job);
}

}  // namespace
}  // namespace corral::sample

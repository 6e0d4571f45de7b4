// SPDX-License-Identifier: Apache-2.0
// The sampling thread against a scripted NVML: whole, failing, lost half-way, and hanging.
#include "sample/sampler.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "../gpu/fake_nvml.h"
#include "../host/fixture_host.h"
#include "base/clock.h"
#include "gpu/inventory.h"

namespace corral::sample {
namespace {

using namespace std::chrono_literals;
using tests::FakeNvml;

Options quick() {
  Options options;
  options.fast_interval = 1ms;
  options.slow_interval = 2ms;
  options.patience = 60s;
  options.job_ancestor = ::getppid();  // this test process is then "of the job"
  return options;
}

class SamplerTest : public testing::Test {
 protected:
  SamplerTest() {
    fake_.gpus = tests::two_gpus();
    fake_.gpus[0].used = 518 << 20;
    nvml_ = fake_.open();
    inventory_ = gpu::read_inventory(tests::fixture_host("fake-two-gpus"), nvml_.get());
    inventory_.simulated = true;  // NVML's pids are ours
  }

  gpu::NvmlOpener opener() {
    return [nvml = nvml_] { return nvml; };
  }
  int calls(const char* symbol) {
    const std::lock_guard lock(fake_.mutex);
    return fake_.calls[symbol];
  }
  // Waits until the thread has made `count` more of these calls.
  void wait_for(const char* symbol, int count) {
    const int before = calls(symbol);
    while (calls(symbol) < before + count) std::this_thread::yield();
  }
  void change(const std::function<void()>& what) {
    const std::lock_guard lock(fake_.mutex);
    what();
  }

  FakeNvml fake_;
  std::shared_ptr<const gpu::Nvml> nvml_;
  gpu::Inventory inventory_;
};

TEST_F(SamplerTest, before_reads_every_gpu_once) {
  Sampler sampler(opener(), inventory_, quick());
  EXPECT_TRUE(sampler.before());
  const Sampled sampled = sampler.stop(monotonic_ns());
  ASSERT_EQ(sampled.gpus.size(), 2U);
  for (const GpuSamples& gpu : sampled.gpus) {
    EXPECT_FALSE(gpu.samples.empty());
    EXPECT_LT(gpu.samples.front().time_s, 0) << "read before the start";
    EXPECT_EQ(gpu.state, "");
    EXPECT_EQ(gpu.process_list_known, true);
    EXPECT_EQ(gpu.memory_total_bytes, std::uint64_t{140} << 30);
  }
  EXPECT_EQ(sampled.gpus[0].samples.front().memory_used_bytes, 518U << 20);
  EXPECT_DOUBLE_EQ(*sampled.gpus[1].samples.front().power_w, 77.89);
  EXPECT_EQ(sampled.gpus[1].samples.front().sm_clock_mhz, 345U);
  EXPECT_TRUE(sampled.notes.empty());
}

TEST_F(SamplerTest, goes_on_until_after_the_job) {
  Sampler sampler(opener(), inventory_, quick());
  sampler.before();
  const std::int64_t start = monotonic_ns();
  wait_for("nvmlDeviceGetPowerUsage", 20);
  change([&] { fake_.gpus[0].used = 1 << 30; });
  const Sampled sampled = sampler.stop(start);
  EXPECT_EQ(sampled.gpus[0].samples.back().memory_used_bytes, 1U << 30) << "one more reading";
  EXPECT_GT(sampled.gpus[0].samples.back().time_s, 0);
  EXPECT_TRUE(std::ranges::is_sorted(sampled.gpus[0].samples, {}, &snapshot::Sample::time_s));
}

TEST_F(SamplerTest, lists_processes_with_whose_they_are) {
  const auto self = static_cast<std::uint32_t>(::getpid());
  fake_.gpus[1].compute = {{self, 100, ~0U, ~0U}};
  Sampler sampler(opener(), inventory_, quick());
  sampler.before();
  const Sampled sampled = sampler.stop(monotonic_ns());
  ASSERT_EQ(sampled.gpus[1].processes.size(), 1U);
  EXPECT_EQ(sampled.gpus[1].processes[0].pid, ::getpid());
  EXPECT_TRUE(sampled.gpus[1].processes[0].of_job);
  EXPECT_NE(sampled.gpus[1].processes[0].command, "");
  EXPECT_EQ(sampled.gpus[1].job_memory_peak_bytes, 100U);
  EXPECT_TRUE(sampled.gpus[0].processes.empty());
  EXPECT_EQ(sampled.gpus[0].job_memory_peak_bytes, 0U);
}

TEST_F(SamplerTest, memory_that_jumps_has_the_processes_listed_at_once) {
  Options options = quick();
  options.slow_interval = 1h;
  Sampler sampler(opener(), inventory_, options);
  sampler.before();
  change([&] {
    fake_.gpus[1].used = 600 << 20;
    fake_.gpus[1].compute = {{static_cast<std::uint32_t>(::getpid()), 100, ~0U, ~0U}};
  });
  wait_for("nvmlDeviceGetComputeRunningProcesses_v3", 2);
  // Gone again before the job has ended.
  change([&] {
    fake_.gpus[1].used = 0;
    fake_.gpus[1].compute = {};
  });
  wait_for("nvmlDeviceGetPowerUsage", 4);
  const Sampled sampled = sampler.stop(monotonic_ns());
  ASSERT_EQ(sampled.gpus[1].processes.size(), 1U);
  EXPECT_EQ(sampled.gpus[1].processes[0].pid, ::getpid());
}

TEST_F(SamplerTest, a_gpu_lost_half_way_keeps_what_it_had) {
  const std::vector<std::string> fast = {"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetPowerUsage",
                                         "nvmlDeviceGetClockInfo"};
  const std::vector<std::string> slow = {"nvmlDeviceGetComputeRunningProcesses_v3"};
  for (const auto& symbols : {fast, slow}) {
    Sampler sampler(opener(), inventory_, quick());
    sampler.before();
    change([&] {
      for (const std::string& symbol : symbols) fake_.failures[symbol + "#0"] = 15;
    });
    wait_for("nvmlDeviceGetComputeRunningProcesses_v3", 10);
    change([&] { fake_.failures.clear(); });
    const std::int64_t cleared = monotonic_ns();
    wait_for("nvmlDeviceGetPowerUsage", 10);
    const Sampled sampled = sampler.stop(cleared);
    EXPECT_EQ(sampled.gpus[0].state, "lost");
    EXPECT_FALSE(sampled.gpus[0].samples.empty());
    for (const auto& sample : sampled.gpus[0].samples) {
      EXPECT_TRUE(sample.memory_used_bytes);
      EXPECT_LT(sample.time_s, 0) << "a lost GPU is not asked again";
    }
    EXPECT_EQ(sampled.gpus[1].state, "");
    EXPECT_GT(sampled.gpus[1].samples.size(), sampled.gpus[0].samples.size());
  }
}

TEST_F(SamplerTest, what_is_not_supported_is_unknown_and_asked_once) {
  fake_.failures["nvmlDeviceGetPowerUsage#0"] = 3;
  fake_.failures["nvmlDeviceGetClockInfo"] = 4;
  Sampler sampler(opener(), inventory_, quick());
  sampler.before();
  wait_for("nvmlDeviceGetClockInfo", 10);
  const int power_calls = calls("nvmlDeviceGetPowerUsage");
  const int clock_calls = calls("nvmlDeviceGetClockInfo");
  const Sampled sampled = sampler.stop(monotonic_ns());
  EXPECT_LE(2 * power_calls, clock_calls + 4) << "asked of the other GPU only";
  EXPECT_EQ(sampled.gpus[0].samples.front().power_w, std::nullopt);
  EXPECT_EQ(sampled.gpus[0].samples.front().sm_clock_mhz, std::nullopt);
  EXPECT_EQ(sampled.gpus[0].samples.front().memory_used_bytes, 518U << 20);
  EXPECT_EQ(sampled.notes, (std::vector<std::string>{"GPU 0: SM clock: no permission",
                                                     "GPU 0: power: not supported",
                                                     "GPU 1: SM clock: no permission"}));
}

TEST_F(SamplerTest, memory_with_the_reserve_in_it_is_named) {
  fake_.failures["nvmlDeviceGetMemoryInfo_v2"] = 13;
  Sampler sampler(opener(), inventory_, quick());
  sampler.before();
  const Sampled sampled = sampler.stop(monotonic_ns());
  ASSERT_EQ(sampled.notes.size(), 2U);
  EXPECT_TRUE(sampled.notes[0].starts_with("GPU 0: memory: with the driver's own reserve"));
}

TEST_F(SamplerTest, process_lists_without_permission_are_unknown) {
  fake_.failures["nvmlDeviceGetComputeRunningProcesses_v3"] = 4;
  Sampler sampler(opener(), inventory_, quick());
  sampler.before();
  const Sampled sampled = sampler.stop(monotonic_ns());
  EXPECT_EQ(sampled.gpus[0].process_list_known, false);
  EXPECT_EQ(sampled.notes.at(0), "GPU 0: process list: no permission");
}

TEST_F(SamplerTest, a_gpu_without_handle_is_not_available) {
  for (const auto& [code, state] :
       {std::pair{4, "not available: no permission"}, std::pair{15, "lost"}}) {
    fake_.failures["nvmlDeviceGetHandleByPciBusId_v2"] = code;
    Sampler sampler(opener(), inventory_, quick());
    EXPECT_TRUE(sampler.before());
    const Sampled sampled = sampler.stop(monotonic_ns());
    EXPECT_EQ(sampled.gpus[0].state, state);
    EXPECT_TRUE(sampled.gpus[0].samples.empty());
    EXPECT_EQ(sampled.gpus[0].process_list_known, std::nullopt);
  }
}

TEST_F(SamplerTest, without_nvml_nothing_is_sampled) {
  Sampler sampler(nullptr, inventory_, quick());
  EXPECT_FALSE(sampler.before());
  const Sampled sampled = sampler.stop(0);
  ASSERT_EQ(sampled.gpus.size(), 2U);
  EXPECT_EQ(sampled.gpus[1].state, "not available: no NVML");
  EXPECT_EQ(sampled.gpus[1].process_list_known, std::nullopt);
}

TEST_F(SamplerTest, a_machine_without_gpus_needs_no_nvml) {
  std::atomic<int> opened = 0;
  Sampler sampler([&] { return ++opened, nvml_; }, gpu::Inventory{}, quick());
  EXPECT_TRUE(sampler.before());
  EXPECT_TRUE(sampler.stop(0).gpus.empty());
  EXPECT_EQ(opened, 0);
}

TEST_F(SamplerTest, nvml_is_opened_in_the_thread_with_every_signal_blocked) {
  std::thread::id opened_by;
  sigset_t mask;
  const auto open = [&] {
    opened_by = std::this_thread::get_id();
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    return nvml_;
  };
  Sampler sampler(open, inventory_, quick());
  EXPECT_TRUE(sampler.before());
  sampler.stop(0);
  EXPECT_NE(opened_by, std::this_thread::get_id());
  EXPECT_TRUE(sigismember(&mask, SIGCHLD)) << "NVML's own threads inherit it";
}

TEST_F(SamplerTest, an_nvml_that_cannot_be_opened_is_a_note_and_a_state) {
  Sampler sampler([] { return fail("NVML: no such file"); }, inventory_, quick());
  EXPECT_FALSE(sampler.before());
  const Sampled sampled = sampler.stop(0);
  EXPECT_EQ(sampled.notes, std::vector<std::string>{"NVML: no such file"});
  EXPECT_TRUE(sampled.remarks.empty());
  ASSERT_EQ(sampled.gpus.size(), 2U);
  EXPECT_EQ(sampled.gpus[0].state, "not available: no NVML");
}

TEST_F(SamplerTest, a_job_that_ends_in_the_delay_never_opens_nvml) {
  std::atomic<int> opened = 0;
  Sampler sampler([&] { return ++opened, nvml_; }, inventory_, quick());
  sampler.start(1h);
  const Sampled sampled = sampler.stop(0);
  EXPECT_EQ(opened, 0);
  EXPECT_EQ(sampled.remarks,
            std::vector<std::string>{"the job ended before NVML had read every GPU once"});
  EXPECT_TRUE(sampled.notes.empty());
  ASSERT_EQ(sampled.gpus.size(), 2U);
  EXPECT_TRUE(sampled.gpus[0].samples.empty());
  EXPECT_EQ(sampled.gpus[0].state, "");
  EXPECT_EQ(sampled.gpus[0].process_list_known, std::nullopt);
}

// With a patience of a minute: the test would not end in time if anybody waited.
TEST_F(SamplerTest, a_job_that_ends_while_nvml_opens_is_not_held_up) {
  std::atomic<bool> opening = false;
  std::atomic<bool> may_go_on = false;
  {
    const auto open = [&, nvml = nvml_] {
      opening = true;
      while (!may_go_on) std::this_thread::yield();
      return nvml;
    };
    Sampler sampler(open, inventory_, quick());
    sampler.start();
    while (!opening) std::this_thread::yield();
    const Sampled sampled = sampler.stop(0);
    EXPECT_EQ(sampled.remarks.size(), 1U);
    EXPECT_TRUE(sampled.notes.empty());
  }
  const int readings = calls("nvmlDeviceGetPowerUsage");
  may_go_on = true;
  nvml_.reset();
  while (!fake_.shut_down) std::this_thread::yield();
  EXPECT_EQ(calls("nvmlDeviceGetPowerUsage"), readings) << "nobody wants them any more";
}

TEST_F(SamplerTest, an_nvml_that_hangs_is_left_behind) {
  Options options = quick();
  options.patience = 50ms;
  Sampled sampled;
  {
    Sampler sampler(opener(), inventory_, options);
    sampler.start();
    wait_for("nvmlDeviceGetComputeRunningProcesses_v3", 2);
    fake_.hang = true;
    while (fake_.hanging == 0) std::this_thread::yield();
    sampled = sampler.stop(monotonic_ns());
  }
  ASSERT_FALSE(sampled.notes.empty());
  EXPECT_EQ(sampled.notes[0], "NVML did not answer for 0.1 s: readings are missing");
  EXPECT_FALSE(sampled.gpus[0].samples.empty()) << "what was read before is handed over";
  // The thread comes back in the end: it must find everything that it touches.
  fake_.hang = false;
  nvml_.reset();
  while (!fake_.shut_down) std::this_thread::yield();
}

TEST_F(SamplerTest, before_does_not_wait_for_ever) {
  Options options = quick();
  options.patience = 50ms;
  fake_.hang = true;
  {
    Sampler sampler(opener(), inventory_, options);
    EXPECT_FALSE(sampler.before());
    const Sampled sampled = sampler.stop(0);
    EXPECT_TRUE(sampled.gpus[0].samples.empty());
    EXPECT_EQ(sampled.notes.size(), 1U) << "it had time enough to answer: not a short job";
    EXPECT_TRUE(sampled.remarks.empty());
  }
  fake_.hang = false;
  nvml_.reset();
  while (!fake_.shut_down) std::this_thread::yield();
}

TEST_F(SamplerTest, signals_go_to_other_threads) {
  Sampler sampler(opener(), inventory_, quick());
  sampler.before();
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_FALSE(sigismember(&mask, SIGTERM)) << "the maker's own mask is as before";
  const auto text = [&](const std::string& task) {
    std::ifstream file("/proc/self/task/" + task + "/status");
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  bool found = false;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    const std::string status = text(entry.path().filename());
    if (status.find("Name:\tcorral-sample") == std::string::npos) continue;
    found = true;
    const auto at = status.find("SigBlk:\t");
    const auto blocked = std::stoull(status.substr(at + 8, 16), nullptr, 16);
    EXPECT_TRUE(blocked >> (SIGTERM - 1) & 1);
    EXPECT_TRUE(blocked >> (SIGINT - 1) & 1);
  }
  EXPECT_TRUE(found);
  sampler.stop(0);
}

TEST_F(SamplerTest, may_be_dropped_without_stopping) {
  Sampler sampler(opener(), inventory_, quick());
  sampler.start();
}

TEST_F(SamplerTest, may_be_stopped_without_starting) {
  Sampler sampler(opener(), inventory_, quick());
  EXPECT_EQ(sampler.stop(0).gpus.size(), 2U);
}

TEST(hand_over, fills_the_runs_gpu) {
  GpuSamples samples;
  samples.samples.resize(3);
  samples.processes.resize(1);
  samples.job_memory_peak_bytes = 5;
  samples.process_list_known = true;
  samples.state = "lost";
  snapshot::GpuRun run;
  run.allowed = true;
  hand_over(samples, run);
  EXPECT_TRUE(run.allowed);
  EXPECT_EQ(run.samples.size(), 3U);
  EXPECT_EQ(run.processes.size(), 1U);
  EXPECT_EQ(run.job_memory_peak_bytes, 5U);
  EXPECT_EQ(run.process_list_known, true);
  EXPECT_EQ(run.state, "lost");
}

}  // namespace
}  // namespace corral::sample

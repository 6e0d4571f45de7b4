// SPDX-License-Identifier: Apache-2.0
// The NVML wrapper against a scripted library.
#include "gpu/nvml.h"

#include <gtest/gtest.h>

#include "fake_nvml.h"

namespace corral::gpu {
namespace {

using nvml_abi::ProcessV2;
using tests::FakeNvml;

constexpr std::uint32_t kNone = nvml_abi::kNoInstance;
constexpr std::byte kCanary{0xa5};

TEST(nvml, answers_come_in_plain_units) {
  FakeNvml fake;
  fake.gpus = tests::two_gpus();
  const auto nvml = fake.open();
  const NvmlDevice device = nvml->device(1).value();
  EXPECT_EQ(nvml->driver_version().value(), "580.159.04");
  EXPECT_EQ(nvml->device_count().value(), 2U);
  EXPECT_EQ(nvml->uuid(device).value(), "GPU-2b685718-e7c6-a661-f4b0-04f71feb86c0");
  EXPECT_EQ(nvml->pci(device)->text(), "0000:00:07.0");
  EXPECT_EQ(nvml->device(host::PciAddress{0, 0, 7, 0})->handle, device.handle);
  EXPECT_EQ(nvml->minor(device).value(), 0U);
  EXPECT_DOUBLE_EQ(nvml->power_w(device).value(), 77.89);
  EXPECT_EQ(nvml->sm_clock_mhz(device).value(), 345U);
}

TEST(nvml, a_missing_library_is_an_error_with_its_name) {
  const auto nvml = Nvml::open("libcorral-no-such-nvml.so.1");
  ASSERT_FALSE(nvml);
  EXPECT_NE(nvml.error().what.find("libcorral-no-such-nvml.so.1"), std::string::npos);
}

TEST(nvml, a_library_without_init_is_an_error) {
  const auto nvml = Nvml::with([](const char*) { return nullptr; });
  EXPECT_EQ(nvml.error().what, "NVML: nvmlInit: no such function in this driver");
}

TEST(nvml, init_that_fails_is_an_error_that_says_why) {
  FakeNvml fake;
  fake.failures["nvmlInit_v2"] = 18;
  EXPECT_EQ(Nvml::with(fake.lookup()).error().what,
            "NVML: nvmlInit: library and kernel driver differ in version");
}

TEST(nvml, is_shut_down_with_its_last_owner) {
  FakeNvml fake;
  auto nvml = fake.open();
  EXPECT_EQ(fake.calls["nvmlShutdown"], 0);
  nvml.reset();
  EXPECT_EQ(fake.calls["nvmlShutdown"], 1);
}

TEST(nvml, the_states_of_a_call_stay_apart) {
  FakeNvml fake;
  fake.gpus = tests::two_gpus();
  const auto nvml = fake.open();
  const NvmlDevice device = nvml->device(0).value();
  for (const int code : {3, 4, 13, 15, 999, 4711}) {
    fake.failures["nvmlDeviceGetPowerUsage"] = code;
    EXPECT_EQ(nvml->power_w(device).error().code, static_cast<NvmlReturn>(code));
  }
  EXPECT_EQ(nvml->power_w(device).error().text(), "nvmlDeviceGetPowerUsage: error 4711");
  fake.failures["nvmlDeviceGetPowerUsage"] = 4;
  EXPECT_EQ(nvml->power_w(device).error().text(), "nvmlDeviceGetPowerUsage: no permission");
}

TEST(nvml, older_forms_stand_in_for_missing_symbols) {
  FakeNvml fake;
  fake.gpus = tests::two_gpus();
  fake.missing = {"nvmlInit_v2", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2",
                  "nvmlDeviceGetPowerUsage"};
  const auto nvml = fake.open();
  ASSERT_TRUE(nvml);
  EXPECT_EQ(nvml->device_count().value(), 2U);
  const NvmlDevice device = nvml->device(0).value();
  EXPECT_EQ(nvml->clock_event_reasons(device).value(), 1U) << "the name before driver 535";
  EXPECT_EQ(nvml->power_w(device).error().code, NvmlReturn::function_not_found);
}

TEST(nvml, older_forms_stand_in_for_ones_that_the_driver_does_not_know) {
  FakeNvml fake;
  fake.gpus = tests::two_gpus();
  fake.failures["nvmlDeviceGetCount_v2"] = 13;
  EXPECT_EQ(fake.open()->device_count().value(), 2U);
}

TEST(nvml, memory_says_whether_the_reserve_is_in_it) {
  FakeNvml fake;
  fake.gpus = tests::two_gpus();
  fake.gpus[0].used = 5;
  const auto nvml = fake.open();
  const NvmlDevice device = nvml->device(0).value();
  EXPECT_EQ(nvml->memory(device)->used_bytes, 5U);
  EXPECT_EQ(nvml->memory(device)->reserved_bytes, fake.gpus[0].reserved);
  for (const int code : {3, 13, 25}) {
    fake.failures["nvmlDeviceGetMemoryInfo_v2"] = code;
    EXPECT_EQ(nvml->memory(device)->used_bytes, 5U + fake.gpus[0].reserved);
    EXPECT_EQ(nvml->memory(device)->reserved_bytes, std::nullopt);
  }
}

TEST(nvml, a_passing_failure_does_not_change_what_memory_means) {
  FakeNvml fake;
  fake.gpus = tests::two_gpus();
  const auto nvml = fake.open();
  fake.failures["nvmlDeviceGetMemoryInfo_v2"] = 15;
  EXPECT_EQ(nvml->memory(nvml->device(0).value()).error().code, NvmlReturn::gpu_is_lost);
  EXPECT_EQ(fake.calls["nvmlDeviceGetMemoryInfo"], 0);
}

TEST(nvml, processes_are_read_in_every_layout_that_drivers_had) {
  FakeNvml fake;
  fake.gpus = tests::two_gpus();
  fake.gpus[0].compute = {{4711, 518 << 20, kNone, kNone},
                          {4712, nvml_abi::kNotAvailable, kNone, kNone},
                          {4713, 0, 3, 0}};
  const auto nvml = fake.open();
  for (const std::size_t bytes : {16U, 24U, 32U, 40U}) {
    fake.entry_bytes = bytes;
    const auto list = nvml->compute_processes(nvml->device(0).value());
    ASSERT_TRUE(list) << bytes;
    ASSERT_EQ(list->size(), 3U) << bytes;
    EXPECT_EQ((*list)[0], (NvmlProcess{4711, 518 << 20, {}, {}})) << bytes;
    EXPECT_EQ((*list)[1], (NvmlProcess{4712, {}, {}, {}})) << bytes;
    EXPECT_EQ((*list)[2].pid, 4713) << bytes;
    EXPECT_EQ((*list)[2].memory_bytes, 0U) << "none is not unknown, " << bytes;
    EXPECT_EQ((*list)[2].gpu_instance_id.has_value(), bytes != 16) << bytes;
  }
}

TEST(nvml, an_unknown_layout_is_refused_or_read_by_an_older_form) {
  FakeNvml fake;
  fake.gpus = tests::two_gpus();
  fake.gpus[0].compute = {{4711, 1, kNone, kNone}, {4712, 2, kNone, kNone}};
  fake.entry_bytes = 48;
  const auto nvml = fake.open();
  const NvmlDevice device = nvml->device(0).value();
  const auto list = nvml->compute_processes(device);
  ASSERT_TRUE(list) << "by _v2";
  EXPECT_EQ((*list)[1].pid, 4712);

  fake.missing = {"nvmlDeviceGetComputeRunningProcesses_v2",
                  "nvmlDeviceGetComputeRunningProcesses"};
  EXPECT_EQ(fake.open()->compute_processes(device).error().code, NvmlReturn::unknown_layout);
}

TEST(nvml, a_long_list_is_asked_for_again_with_more_room) {
  FakeNvml fake;
  fake.gpus = tests::two_gpus();
  for (std::uint32_t i = 0; i < 1000; ++i)
    fake.gpus[0].compute.push_back({1000 + i, i, kNone, kNone});
  const auto nvml = fake.open();
  const auto list = nvml->compute_processes(nvml->device(0).value());
  ASSERT_TRUE(list);
  EXPECT_EQ(list->size(), 1000U);
  EXPECT_EQ(list->back().pid, 1999);
}

TEST(nvml, a_list_that_always_wants_more_room_ends) {
  FakeNvml fake;
  fake.gpus = tests::two_gpus();
  fake.failures["nvmlDeviceGetComputeRunningProcesses_v3"] = 7;
  const auto nvml = fake.open();
  EXPECT_EQ(nvml->compute_processes(nvml->device(0).value()).error().code,
            NvmlReturn::insufficient_size);
}

TEST(nvml, graphics_lists_have_their_own_symbol) {
  FakeNvml fake;
  fake.gpus = tests::two_gpus();
  fake.gpus[1].graphics = {{99, 7, kNone, kNone}};
  const auto nvml = fake.open();
  EXPECT_EQ(nvml->graphics_processes(nvml->device(1).value())->at(0).pid, 99);
  EXPECT_TRUE(nvml->graphics_processes(nvml->device(0).value())->empty());
}

TEST(nvml, instances_are_those_that_exist) {
  FakeNvml fake;
  fake.gpus = tests::two_gpus();
  fake.gpus[0].mig = true;
  fake.gpus[0].instances = {{"MIG-a", 1, 0}, {"MIG-b", 2, 1}};
  const auto nvml = fake.open();
  const NvmlDevice device = nvml->device(0).value();
  EXPECT_TRUE(nvml->mig_enabled(device).value());
  const auto instances = nvml->mig_instances(device).value();
  ASSERT_EQ(instances.size(), 2U);
  EXPECT_EQ(instances[1].gpu_instance_id, 2U);
  EXPECT_EQ(instances[1].compute_instance_id, 1U);
  EXPECT_EQ(nvml->uuid(instances[1].device).value(), "MIG-b");
  EXPECT_EQ(nvml->mig_memory_bytes(instances[1].device).value(), std::uint64_t{16} << 30);
}

// Entries of `bytes` each in a buffer with room to spare.
std::vector<std::byte> entries_of(std::size_t bytes, const std::vector<ProcessV2>& entries) {
  std::vector<std::byte> buffer(entries.size() * bytes + 256, kCanary);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    std::memset(buffer.data() + i * bytes, 0, bytes);
    ProcessV2 entry;
    std::memset(&entry, 0, sizeof entry);  // the padding, too
    entry.pid = entries[i].pid;
    entry.memory = entries[i].memory;
    entry.gpu_instance = entries[i].gpu_instance;
    entry.compute_instance = entries[i].compute_instance;
    std::memcpy(buffer.data() + i * bytes, &entry, std::min(bytes, sizeof entry));
  }
  return buffer;
}

TEST(process_entry_bytes, the_end_of_what_was_written_tells) {
  const std::vector<ProcessV2> two = {{1, 1, 1, 1}, {2, 2, 2, 2}};
  for (const std::size_t bytes : {16U, 24U, 32U, 40U})
    EXPECT_EQ(process_entry_bytes(entries_of(bytes, two), 2, kCanary, 24), bytes);
  EXPECT_EQ(process_entry_bytes(entries_of(20, two), 2, kCanary, 24), std::nullopt);
}

TEST(process_entry_bytes, pids_and_memory_must_make_sense) {
  const std::vector<ProcessV2> pid_zero = {{0, 1, kNone, kNone}, {2, 2, kNone, kNone}};
  const std::vector<ProcessV2> pid_huge = {{1U << 30, 1, kNone, kNone}, {2, 2, kNone, kNone}};
  const std::vector<ProcessV2> memory_huge = {{1, std::uint64_t{1} << 60, kNone, kNone}};
  for (const auto& entries : {pid_zero, pid_huge, memory_huge})
    EXPECT_EQ(process_entry_bytes(entries_of(24, entries), entries.size(), kCanary, 24),
              std::nullopt);
}

TEST(process_entry_bytes, writing_past_the_end_leaves_the_expected_or_the_only_reading) {
  const auto read = [](const std::vector<ProcessV2>& entries, std::size_t bytes,
                       std::size_t expected) {
    auto buffer = entries_of(bytes, entries);
    std::fill_n(buffer.begin() + static_cast<std::ptrdiff_t>(entries.size() * bytes), 100,
                std::byte{0});
    return process_entry_bytes(buffer, entries.size(), kCanary, expected);
  };
  const std::vector<ProcessV2> two = {{10, 1, kNone, kNone}, {11, 2, kNone, kNone}};
  EXPECT_EQ(read(two, 24, 24), 24U);
  EXPECT_EQ(read(two, 24, 16), std::nullopt) << "with 32 it makes sense, too";
  const std::vector<ProcessV2> large = {{10, 5'000'000'000, kNone, kNone},
                                        {11, 6'000'000'000, kNone, kNone}};
  EXPECT_EQ(read(large, 24, 16), 24U);
}

TEST(process_entry_bytes, nothing_written_is_no_layout) {
  const std::vector<std::byte> buffer(256, kCanary);
  EXPECT_EQ(process_entry_bytes(buffer, 1, kCanary, 24), std::nullopt);
  EXPECT_EQ(process_entry_bytes({}, 3, kCanary, 24), std::nullopt);
}

}  // namespace
}  // namespace corral::gpu

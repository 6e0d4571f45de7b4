// SPDX-License-Identifier: Apache-2.0
// Our declarations of NVML against the real header, on machines that have it.
#include "gpu/nvml_api.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#if __has_include("/usr/local/cuda/include/nvml.h")
#include "/usr/local/cuda/include/nvml.h"
#define CORRAL_HAVE_NVML_H 1
#else
#define CORRAL_HAVE_NVML_H 0
#endif

namespace corral::gpu {
namespace {

#if CORRAL_HAVE_NVML_H

template <class Ours, class Theirs>
void expect_same_size() {
  EXPECT_EQ(sizeof(Ours), sizeof(Theirs));
  EXPECT_EQ(alignof(Ours), alignof(Theirs));
}

TEST(nvml_api, codes_are_nvmls) {
  EXPECT_EQ(static_cast<int>(NvmlReturn::success), NVML_SUCCESS);
  EXPECT_EQ(static_cast<int>(NvmlReturn::uninitialized), NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ(static_cast<int>(NvmlReturn::invalid_argument), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(static_cast<int>(NvmlReturn::not_supported), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(static_cast<int>(NvmlReturn::no_permission), NVML_ERROR_NO_PERMISSION);
  EXPECT_EQ(static_cast<int>(NvmlReturn::not_found), NVML_ERROR_NOT_FOUND);
  EXPECT_EQ(static_cast<int>(NvmlReturn::insufficient_size), NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(static_cast<int>(NvmlReturn::driver_not_loaded), NVML_ERROR_DRIVER_NOT_LOADED);
  EXPECT_EQ(static_cast<int>(NvmlReturn::timeout), NVML_ERROR_TIMEOUT);
  EXPECT_EQ(static_cast<int>(NvmlReturn::library_not_found), NVML_ERROR_LIBRARY_NOT_FOUND);
  EXPECT_EQ(static_cast<int>(NvmlReturn::function_not_found), NVML_ERROR_FUNCTION_NOT_FOUND);
  EXPECT_EQ(static_cast<int>(NvmlReturn::gpu_is_lost), NVML_ERROR_GPU_IS_LOST);
  EXPECT_EQ(static_cast<int>(NvmlReturn::lib_rm_version_mismatch),
            NVML_ERROR_LIB_RM_VERSION_MISMATCH);
  EXPECT_EQ(static_cast<int>(NvmlReturn::argument_version_mismatch),
            NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  EXPECT_EQ(static_cast<int>(NvmlReturn::unknown), NVML_ERROR_UNKNOWN);
}

TEST(nvml_api, constants_are_nvmls) {
  using namespace nvml_abi;
  EXPECT_EQ(kUuidBytes, unsigned{NVML_DEVICE_UUID_V2_BUFFER_SIZE});
  EXPECT_EQ(kNameBytes, unsigned{NVML_DEVICE_NAME_V2_BUFFER_SIZE});
  EXPECT_EQ(kVersionBytes, unsigned{NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE});
  EXPECT_EQ(kClockSm, static_cast<unsigned>(NVML_CLOCK_SM));
  EXPECT_EQ(kMigEnabled, unsigned{NVML_DEVICE_MIG_ENABLE});
  EXPECT_EQ(kMemoryV2, nvmlMemory_v2);
  EXPECT_EQ(kNotAvailable, static_cast<std::uint64_t>(NVML_VALUE_NOT_AVAILABLE));
}

TEST(nvml_api, layouts_are_nvmls) {
  using namespace nvml_abi;
  expect_same_size<Device, nvmlDevice_t>();
  expect_same_size<MemoryV1, nvmlMemory_t>();
  expect_same_size<MemoryV2, nvmlMemory_v2_t>();
  expect_same_size<ProcessV1, nvmlProcessInfo_v1_t>();
  expect_same_size<ProcessV2, nvmlProcessInfo_v2_t>();
  expect_same_size<ProcessV2, nvmlProcessInfo_t>();
  expect_same_size<Attributes, nvmlDeviceAttributes_t>();
  EXPECT_GE(sizeof(PciInfo), sizeof(nvmlPciInfo_t)) << "room for every version";

  EXPECT_EQ(offsetof(PciInfo, domain), offsetof(nvmlPciInfo_t, domain));
  EXPECT_EQ(offsetof(PciInfo, bus), offsetof(nvmlPciInfo_t, bus));
  EXPECT_EQ(offsetof(PciInfo, device), offsetof(nvmlPciInfo_t, device));
  EXPECT_EQ(offsetof(MemoryV1, used), offsetof(nvmlMemory_t, used));
  EXPECT_EQ(offsetof(MemoryV2, reserved), offsetof(nvmlMemory_v2_t, reserved));
  EXPECT_EQ(offsetof(MemoryV2, used), offsetof(nvmlMemory_v2_t, used));
  EXPECT_EQ(offsetof(ProcessV2, memory), offsetof(nvmlProcessInfo_v2_t, usedGpuMemory));
  EXPECT_EQ(offsetof(ProcessV2, gpu_instance), offsetof(nvmlProcessInfo_v2_t, gpuInstanceId));
  EXPECT_EQ(offsetof(ProcessV2, compute_instance),
            offsetof(nvmlProcessInfo_v2_t, computeInstanceId));
  EXPECT_EQ(offsetof(Attributes, memory_mib), offsetof(nvmlDeviceAttributes_t, memorySizeMB));
}

#else

TEST(nvml_api, is_nvmls) {
  const char* must = std::getenv("CORRAL_MUST_WORK");
  ASSERT_FALSE(must && std::string_view(must).find("nvml.h") != std::string_view::npos)
      << "no nvml.h in /usr/local/cuda/include";
  GTEST_SKIP() << "no nvml.h in /usr/local/cuda/include";
}

#endif

}  // namespace
}  // namespace corral::gpu

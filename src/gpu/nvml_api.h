// SPDX-License-Identifier: Apache-2.0
// The part of NVML's C interface that we call, declared by ourselves: nvml.h is not needed to
// build. Layouts and values are NVML's ABI (NVML API reference, CUDA 13.0); a test compares them
// with the real header where there is one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace corral::gpu {

// nvmlReturn_t.
enum class NvmlReturn : int {
  success = 0,
  uninitialized = 1,
  invalid_argument = 2,
  not_supported = 3,
  no_permission = 4,
  not_found = 6,
  insufficient_size = 7,
  driver_not_loaded = 9,
  timeout = 10,
  library_not_found = 12,
  function_not_found = 13,  // the driver lacks it; also ours for a symbol that the library lacks
  gpu_is_lost = 15,
  lib_rm_version_mismatch = 18,
  argument_version_mismatch = 25,
  unknown = 999,
  // Not NVML's: the answer does not have any layout that we know.
  unknown_layout = -1,
};

namespace nvml_abi {

using Device = void*;

inline constexpr unsigned kUuidBytes = 96;     // NVML_DEVICE_UUID_V2_BUFFER_SIZE
inline constexpr unsigned kNameBytes = 96;     // NVML_DEVICE_NAME_V2_BUFFER_SIZE
inline constexpr unsigned kVersionBytes = 80;  // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE
inline constexpr unsigned kClockSm = 1;        // NVML_CLOCK_SM
inline constexpr unsigned kMigEnabled = 1;     // NVML_DEVICE_MIG_ENABLE
inline constexpr std::uint64_t kNotAvailable = ~std::uint64_t{0};  // NVML_VALUE_NOT_AVAILABLE
inline constexpr std::uint32_t kNoInstance = ~std::uint32_t{0};    // not of a MIG instance

// nvmlPciInfo_t. The three versions of the call differ only after `device`: the tail is room for
// the longest.
struct PciInfo {
  char bus_id_legacy[16];
  std::uint32_t domain;
  std::uint32_t bus;
  std::uint32_t device;
  char rest[64];
};

// nvmlMemory_t.
struct MemoryV1 {
  std::uint64_t total;
  std::uint64_t free;
  std::uint64_t used;
};

// nvmlMemory_v2_t.
struct MemoryV2 {
  std::uint32_t version;
  std::uint64_t total;
  std::uint64_t reserved;
  std::uint64_t free;
  std::uint64_t used;
};
inline constexpr std::uint32_t kMemoryV2 = sizeof(MemoryV2) | 2U << 24;  // NVML_STRUCT_VERSION

// nvmlProcessInfo_v1_t.
struct ProcessV1 {
  std::uint32_t pid;
  std::uint64_t memory;
};

// nvmlProcessInfo_v2_t, which is also nvmlProcessInfo_t.
struct ProcessV2 {
  std::uint32_t pid;
  std::uint64_t memory;
  std::uint32_t gpu_instance;
  std::uint32_t compute_instance;
};

// nvmlDeviceAttributes_t, of a MIG instance.
struct Attributes {
  std::uint32_t multiprocessors;
  std::uint32_t copy_engines;
  std::uint32_t decoders;
  std::uint32_t encoders;
  std::uint32_t jpeg_engines;
  std::uint32_t optical_flow_engines;
  std::uint32_t gpu_slices;
  std::uint32_t compute_slices;
  std::uint64_t memory_mib;
};

}  // namespace nvml_abi
}  // namespace corral::gpu

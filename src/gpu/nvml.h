// SPDX-License-Identifier: Apache-2.0
// NVML, found at run time. Each function is looked up by itself with the older forms behind it, so
// that an old or a broken library costs single facts and not all of them.
//
// Not here on purpose: nvmlDeviceGetPcieThroughput samples for 20 ms a call.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "gpu/nvml_api.h"
#include "host/pci_address.h"

namespace corral::gpu {

// What a call answered instead of a value: not supported, no permission, lost and missing are
// different things to a user and stay apart.
struct NvmlFailure {
  NvmlReturn code = NvmlReturn::unknown;
  const char* call = "";  // "nvmlDeviceGetUUID"

  std::string text() const;  // "nvmlDeviceGetUUID: no permission"
};

// "no permission", "GPU is lost", "error 42".
std::string describe(NvmlReturn code);

template <class T>
using NvmlResult = std::expected<T, NvmlFailure>;

// A GPU or a MIG instance. Valid as long as the Nvml it came from.
struct NvmlDevice {
  nvml_abi::Device handle = nullptr;
};

struct NvmlMemory {
  std::uint64_t total_bytes = 0;
  // Allocated. With `reserved_bytes` known the driver's own reserve is not in it (the call's second
  // version); where only the first version exists it is, about 0.6 GB on an H200, and nothing tells
  // how much.
  std::uint64_t used_bytes = 0;
  std::optional<std::uint64_t> reserved_bytes;
};

struct NvmlProcess {
  pid_t pid = 0;  // in the pid namespace of the host, not of a container
  std::optional<std::uint64_t> memory_bytes;
  std::optional<unsigned> gpu_instance_id;
  std::optional<unsigned> compute_instance_id;

  bool operator==(const NvmlProcess&) const = default;
};

// The limits that the card accepts, in milliwatts as NVML has them.
struct NvmlPowerRange {
  unsigned min_mw = 0;
  unsigned max_mw = 0;
};

struct NvmlInstance {
  NvmlDevice device;
  unsigned gpu_instance_id = 0;
  unsigned compute_instance_id = 0;
};

// Thread-safe after construction, as NVML is.
class Nvml {
 public:
  // The address of a symbol of the library, null where it has none.
  using Lookup = std::function<void*(const char*)>;

  // dlopen + nvmlInit. `path` as dlopen wants it.
  static Result<std::shared_ptr<const Nvml>> open(const std::string& path = "libnvidia-ml.so.1");
  // Any library, for tests: `lookup` is asked during the call only.
  static Result<std::shared_ptr<const Nvml>> with(const Lookup& lookup);

  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml();

  NvmlResult<std::string> driver_version() const;
  NvmlResult<unsigned> device_count() const;
  // Wakes a sleeping GPU.
  NvmlResult<NvmlDevice> device(unsigned index) const;
  NvmlResult<NvmlDevice> device(const host::PciAddress& address) const;

  NvmlResult<std::string> uuid(NvmlDevice device) const;
  NvmlResult<std::string> name(NvmlDevice device) const;
  NvmlResult<host::PciAddress> pci(NvmlDevice device) const;
  NvmlResult<unsigned> minor(NvmlDevice device) const;

  NvmlResult<NvmlMemory> memory(NvmlDevice device) const;
  NvmlResult<double> power_w(NvmlDevice device) const;
  // The limit that was asked for, the one that a card has after a reset, and the lowest of all that
  // hold now: what the card obeys.
  NvmlResult<unsigned> power_limit_mw(NvmlDevice device) const;
  NvmlResult<unsigned> default_power_limit_mw(NvmlDevice device) const;
  NvmlResult<unsigned> enforced_power_limit_mw(NvmlDevice device) const;
  NvmlResult<NvmlPowerRange> power_limit_range(NvmlDevice device) const;
  // The only call here that changes a card, for every user of it: src/power alone calls it.
  NvmlResult<void> set_power_limit(NvmlDevice device, unsigned milliwatts) const;
  NvmlResult<unsigned> sm_clock_mhz(NvmlDevice device) const;
  // Bits of nvmlClocksEventReason…, called throttle reasons before driver 535.
  NvmlResult<std::uint64_t> clock_event_reasons(NvmlDevice device) const;

  NvmlResult<std::vector<NvmlProcess>> compute_processes(NvmlDevice device) const;
  NvmlResult<std::vector<NvmlProcess>> graphics_processes(NvmlDevice device) const;

  NvmlResult<bool> mig_enabled(NvmlDevice device) const;
  NvmlResult<std::vector<NvmlInstance>> mig_instances(NvmlDevice device) const;
  NvmlResult<std::uint64_t> mig_memory_bytes(NvmlDevice instance) const;

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<Functions> functions);

  std::unique_ptr<const Functions> functions_;
};

// Opens NVML, or gives the one that is open already.
using NvmlOpener = std::function<Result<std::shared_ptr<const Nvml>>()>;

// The size of one entry of a process list that NVML wrote into `buffer`, which was full of
// `canary` before; nullopt when it fits none of the layouts that drivers have shipped under one
// name: 16 bytes (v1), 24 (v2), 32 (driver 535.43 to 535.86), 40. `expected` wins where two fit.
// With `count` < 2 the size does not matter to the reader and is what was written.
std::optional<std::size_t> process_entry_bytes(std::span<const std::byte> buffer, std::size_t count,
                                               std::byte canary, std::size_t expected);

}  // namespace corral::gpu

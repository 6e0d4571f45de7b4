// SPDX-License-Identifier: Apache-2.0
// An NVML of plain data behind the real symbol names, with every fault that a test asks for.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "gpu/nvml.h"

namespace corral::tests {

struct FakeInstance {
  std::string uuid;
  unsigned gpu_instance = 0;
  unsigned compute_instance = 0;
};

struct FakeGpu {
  std::uint32_t bus = 0;
  std::uint32_t device = 0;
  std::string uuid;
  std::string name = "NVIDIA H200";
  unsigned minor = 0;
  std::uint64_t total = std::uint64_t{140} << 30;
  std::uint64_t used = 0;
  std::uint64_t reserved = 616 << 20;
  unsigned power_mw = 77890;
  unsigned sm_mhz = 345;
  unsigned limit_mw = 700000;
  unsigned default_limit_mw = 700000;
  unsigned enforced_limit_mw = 650000;
  unsigned min_limit_mw = 200000;
  unsigned max_limit_mw = 700000;
  bool setter_lies = false;
  std::vector<gpu::nvml_abi::ProcessV2> compute;
  std::vector<gpu::nvml_abi::ProcessV2> graphics;
  bool mig = false;
  std::vector<FakeInstance> instances;
};

// The one that is alive answers the calls: the functions are C functions without a context.
class FakeNvml {
 public:
  FakeNvml() { current_ = this; }
  ~FakeNvml() { current_ = nullptr; }
  FakeNvml(const FakeNvml&) = delete;
  FakeNvml& operator=(const FakeNvml&) = delete;

  std::vector<FakeGpu> gpus;
  // Guards everything below and the GPUs' values once a sampler runs.
  std::mutex mutex;
  // Symbol to what it returns instead of its answer; "symbol#1" only for the second GPU.
  std::map<std::string, int> failures;
  std::set<std::string> missing;  // symbols that the library does not have
  std::size_t entry_bytes = 24;   // of the _v2 and _v3 process lists
  std::size_t written_after = 0;  // bytes of nothing after the last entry
  unsigned shown = ~0U;           // count less than `gpus`: the others are hidden
  std::map<std::string, int> calls;
  std::atomic<bool> hang = false;  // calls do not return while this is set
  std::atomic<int> hanging = 0;
  std::atomic<bool> shut_down = false;  // nothing of this is touched afterwards

  std::shared_ptr<const gpu::Nvml> open() {
    auto nvml = gpu::Nvml::with(lookup());
    return nvml ? *nvml : nullptr;
  }

  gpu::Nvml::Lookup lookup() {
    return [this](const char* symbol) -> void* {
      if (missing.contains(symbol)) return nullptr;
      const auto it = table().find(symbol);
      return it == table().end() ? nullptr : it->second;
    };
  }

  static std::vector<std::string> symbols() {
    std::vector<std::string> out;
    for (const auto& [name, function] : table()) out.push_back(name);
    return out;
  }

 private:
  using Device = gpu::nvml_abi::Device;

  // Handles: 1 + GPU index, 1000 × (1 + GPU index) + 1 + instance index.
  static Device handle(std::uintptr_t number) { return reinterpret_cast<Device>(number); }
  static std::size_t gpu_of(Device device) {
    const auto number = reinterpret_cast<std::uintptr_t>(device);
    return number >= 1000 ? number / 1000 - 1 : number - 1;
  }
  static const FakeInstance* instance_of(Device device) {
    const auto number = reinterpret_cast<std::uintptr_t>(device);
    return number < 1000 ? nullptr : &current_->gpus[gpu_of(device)].instances[number % 1000 - 1];
  }

  // The scripted failure of a call, 0 for none.
  static int fault(const char* symbol, std::size_t gpu = ~std::size_t{0}) {
    FakeNvml& fake = *current_;
    if (fake.hang) {
      ++fake.hanging;
      while (fake.hang) {
      }
      --fake.hanging;
    }
    const std::lock_guard lock(fake.mutex);
    ++fake.calls[symbol];
    auto it = fake.failures.find(symbol);
    if (it == fake.failures.end())
      it = fake.failures.find(std::string(symbol) + "#" + std::to_string(gpu));
    return it == fake.failures.end() ? 0 : it->second;
  }

  static int put(const std::string& text, char* buffer, unsigned bytes) {
    if (text.size() + 1 > bytes) return 7;
    std::memcpy(buffer, text.c_str(), text.size() + 1);
    return 0;
  }

  static int list(const std::vector<gpu::nvml_abi::ProcessV2>& entries, std::size_t entry_bytes,
                  unsigned* count, void* out) {
    const auto room = *count;
    *count = static_cast<unsigned>(entries.size());
    if (room < entries.size()) return 7;
    auto* bytes = static_cast<std::byte*>(out);
    for (const auto& entry : entries) {
      std::memset(bytes, 0, entry_bytes);
      std::memcpy(bytes, &entry, std::min(entry_bytes, sizeof entry));
      bytes += entry_bytes;
    }
    std::memset(bytes, 0, current_->written_after);
    return 0;
  }

  static const std::map<std::string, void*>& table();

  static inline FakeNvml* current_ = nullptr;
};

#define CORRAL_FAKE(symbol, arguments, gpu, body)                                       \
  {#symbol, reinterpret_cast<void*>(static_cast<int(*) arguments>([] arguments -> int { \
     if (const int code = fault(#symbol, gpu)) return code;                             \
     [[maybe_unused]] const std::lock_guard lock(current_->mutex);                      \
     body;                                                                              \
     return 0;                                                                          \
   }))}

inline const std::map<std::string, void*>& FakeNvml::table() {
  using namespace gpu::nvml_abi;
  constexpr std::size_t kNoGpu = ~std::size_t{0};
  static const std::map<std::string, void*> functions = {
    CORRAL_FAKE(nvmlInit_v2, (), kNoGpu, ),
    CORRAL_FAKE(nvmlInit, (), kNoGpu, ),
    {"nvmlShutdown", reinterpret_cast<void*>(static_cast<int (*)()>([] {
       fault("nvmlShutdown");
       current_->shut_down = true;
       return 0;
     }))},
    CORRAL_FAKE(nvmlSystemGetDriverVersion, (char* text, unsigned bytes), kNoGpu,
                return put("580.159.04", text, bytes)),
    CORRAL_FAKE(nvmlDeviceGetCount_v2, (unsigned* count), kNoGpu,
                *count = std::min(current_->shown, unsigned(current_->gpus.size()))),
    CORRAL_FAKE(nvmlDeviceGetCount, (unsigned* count), kNoGpu,
                *count = std::min(current_->shown, unsigned(current_->gpus.size()))),
    CORRAL_FAKE(nvmlDeviceGetHandleByIndex_v2, (unsigned index, Device* out), index,
                if (index >= current_->gpus.size()) return 2;
                *out = handle(index + 1)),
    CORRAL_FAKE(nvmlDeviceGetHandleByIndex, (unsigned index, Device* out), index,
                if (index >= current_->gpus.size()) return 2;
                *out = handle(index + 1)),
    CORRAL_FAKE(
        nvmlDeviceGetHandleByPciBusId_v2, (const char* text, Device* out), kNoGpu,
        const auto address = host::PciAddress::parse(text);
        for (std::size_t i = 0; i < current_->gpus.size();
             ++i) if (address && address->bus == current_->gpus[i].bus &&
                      address->device == current_->gpus[i].device) {
          *out = handle(i + 1);
          return 0;
        } return 6),
    CORRAL_FAKE(
        nvmlDeviceGetUUID, (Device device, char* text, unsigned bytes), gpu_of(device),
        const auto* instance = instance_of(device);
        return put(instance ? instance->uuid : current_->gpus[gpu_of(device)].uuid, text, bytes)),
    CORRAL_FAKE(nvmlDeviceGetName, (Device device, char* text, unsigned bytes), gpu_of(device),
                return put(current_->gpus[gpu_of(device)].name +
                               (instance_of(device) ? " MIG 1g.18gb" : ""),
                           text, bytes)),
    CORRAL_FAKE(nvmlDeviceGetPciInfo_v3, (Device device, PciInfo * out), gpu_of(device),
                out->domain = 0;
                out->bus = current_->gpus[gpu_of(device)].bus;
                out->device = current_->gpus[gpu_of(device)].device),
    CORRAL_FAKE(nvmlDeviceGetMinorNumber, (Device device, unsigned* out), gpu_of(device),
                *out = current_->gpus[gpu_of(device)].minor),
    CORRAL_FAKE(nvmlDeviceGetMemoryInfo_v2, (Device device, MemoryV2 * out), gpu_of(device),
                if (out->version != kMemoryV2) return 25;
                const FakeGpu& gpu = current_->gpus[gpu_of(device)]; out->total = gpu.total;
                out->used = gpu.used; out->reserved = gpu.reserved;
                out->free = gpu.total - gpu.used - gpu.reserved),
    CORRAL_FAKE(nvmlDeviceGetMemoryInfo, (Device device, MemoryV1 * out), gpu_of(device),
                const FakeGpu& gpu = current_->gpus[gpu_of(device)];
                out->total = gpu.total; out->used = gpu.used + gpu.reserved;
                out->free = gpu.total - out->used),
    CORRAL_FAKE(nvmlDeviceGetPowerUsage, (Device device, unsigned* out), gpu_of(device),
                *out = current_->gpus[gpu_of(device)].power_mw),
    CORRAL_FAKE(nvmlDeviceGetPowerManagementLimit, (Device device, unsigned* out), gpu_of(device),
                *out = current_->gpus[gpu_of(device)].limit_mw),
    CORRAL_FAKE(nvmlDeviceGetPowerManagementDefaultLimit, (Device device, unsigned* out),
                gpu_of(device), *out = current_->gpus[gpu_of(device)].default_limit_mw),
    CORRAL_FAKE(nvmlDeviceGetEnforcedPowerLimit, (Device device, unsigned* out), gpu_of(device),
                *out = current_->gpus[gpu_of(device)].enforced_limit_mw),
    CORRAL_FAKE(nvmlDeviceGetPowerManagementLimitConstraints,
                (Device device, unsigned* least, unsigned* most), gpu_of(device),
                *least = current_->gpus[gpu_of(device)].min_limit_mw;
                *most = current_->gpus[gpu_of(device)].max_limit_mw),
    CORRAL_FAKE(nvmlDeviceSetPowerManagementLimit, (Device device, unsigned milliwatts),
                gpu_of(device), FakeGpu& gpu = current_->gpus[gpu_of(device)];
                if (!gpu.setter_lies) gpu.limit_mw = milliwatts),
    CORRAL_FAKE(nvmlDeviceGetClockInfo, (Device device, unsigned kind, unsigned* out),
                gpu_of(device), if (kind != kClockSm) return 2;
                *out = current_->gpus[gpu_of(device)].sm_mhz),
    CORRAL_FAKE(nvmlDeviceGetCurrentClocksThrottleReasons, (Device device, unsigned long long* out),
                gpu_of(device), *out = 1),
    CORRAL_FAKE(
        nvmlDeviceGetComputeRunningProcesses_v3, (Device device, unsigned* count, void* out),
        gpu_of(device),
        return list(current_->gpus[gpu_of(device)].compute, current_->entry_bytes, count, out)),
    CORRAL_FAKE(nvmlDeviceGetComputeRunningProcesses_v2,
                (Device device, unsigned* count, void* out), gpu_of(device),
                return list(current_->gpus[gpu_of(device)].compute, 24, count, out)),
    CORRAL_FAKE(nvmlDeviceGetComputeRunningProcesses, (Device device, unsigned* count, void* out),
                gpu_of(device),
                return list(current_->gpus[gpu_of(device)].compute, 16, count, out)),
    CORRAL_FAKE(
        nvmlDeviceGetGraphicsRunningProcesses_v3, (Device device, unsigned* count, void* out),
        gpu_of(device),
        return list(current_->gpus[gpu_of(device)].graphics, current_->entry_bytes, count, out)),
    CORRAL_FAKE(nvmlDeviceGetMigMode, (Device device, unsigned* now, unsigned* pending),
                gpu_of(device), *now = *pending = current_->gpus[gpu_of(device)].mig),
    CORRAL_FAKE(nvmlDeviceGetMaxMigDeviceCount, (Device, unsigned* out), kNoGpu, *out = 7),
    CORRAL_FAKE(nvmlDeviceGetMigDeviceHandleByIndex, (Device device, unsigned index, Device* out),
                gpu_of(device),
                if (index >= current_->gpus[gpu_of(device)].instances.size()) return 6;
                *out = handle(1000 * (gpu_of(device) + 1) + index + 1)),
    CORRAL_FAKE(nvmlDeviceGetGpuInstanceId, (Device device, unsigned* out), gpu_of(device),
                *out = instance_of(device)->gpu_instance),
    CORRAL_FAKE(nvmlDeviceGetComputeInstanceId, (Device device, unsigned* out), gpu_of(device),
                *out = instance_of(device)->compute_instance),
    CORRAL_FAKE(nvmlDeviceGetAttributes_v2, (Device device, Attributes * out), gpu_of(device),
                out->memory_mib = 16384),
  };
  return functions;
}

#undef CORRAL_FAKE

// The GPUs of tests/fixtures/hosts/fake-two-gpus.
inline std::vector<FakeGpu> two_gpus() {
  std::vector<FakeGpu> out(2);
  out[0].device = 6;
  out[0].uuid = "GPU-2a4d0660-db8e-67f0-3142-37ccd2d5b25c";
  out[0].minor = 1;
  out[1].device = 7;
  out[1].uuid = "GPU-2b685718-e7c6-a661-f4b0-04f71feb86c0";
  out[1].minor = 0;
  return out;
}

}  // namespace corral::tests

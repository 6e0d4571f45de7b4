// SPDX-License-Identifier: Apache-2.0
// libnvidia-ml.so.1 of the simulated machine: memory, processes, power and clocks.
#include <time.h>
#include <unistd.h>

#include "ml.h"

namespace corral::sim {
namespace {

struct Memory {
  std::uint64_t total, reserved, used;
  std::uint64_t free() const { return reserved + used < total ? total - reserved - used : 0; }
};

Memory memory_of(const Device* device) {
  const Gpu& gpu = gpu_of(device);
  Machine& machine = library().machine;
  if (device->mig < 0)
    return {gpu.memory_bytes, gpu.reserved_bytes, machine.used_bytes(device->gpu)};
  const auto mig = static_cast<unsigned>(device->mig);
  return {gpu.mig[mig].memory_bytes, 0, machine.instance_used_bytes(device->gpu, mig)};
}

// The two layouts of the process query.
struct ProcessInfo1 {
  unsigned pid;
  unsigned long long used_bytes;
};
struct ProcessInfo2 {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(ProcessInfo1) == 16 && sizeof(ProcessInfo2) == 24);

void fill(ProcessInfo1& info, const ProcessInfo2& from) { info = {from.pid, from.used_bytes}; }
void fill(ProcessInfo2& info, const ProcessInfo2& from) { info = from; }

template <class Info>
int compute_processes(const Device* device, unsigned* count, Info* infos) {
  if (count == nullptr || (*count > 0 && infos == nullptr)) return kInvalidArgument;
  const Gpu& gpu = gpu_of(device);
  unsigned found = 0;
  const unsigned used = state().processes_used;
  for (unsigned i = 0; i < used; ++i) {
    const Process& process = state().processes[i];
    const std::uint64_t held = holding_bytes(state(), process, device->gpu);
    const std::uint32_t mig = process.mig;
    const bool here = mig != kNoMig && mig / kMaxMig == device->gpu;
    if (held == 0 ||
        (device->mig >= 0 && (!here || mig % kMaxMig != static_cast<unsigned>(device->mig)))) {
      continue;
    }
    const unsigned pid = process.pid;
    if (pid == 0 || !library().machine.alive(i)) continue;
    if (found < *count) {
      const MigInstance& instance = gpu.mig[here ? mig % kMaxMig : 0];
      fill(infos[found], ProcessInfo2{pid, held, here ? instance.gpu_instance : kNotAvailable,
                                      here ? instance.compute_instance : kNotAvailable});
    }
    ++found;
  }
  const bool fits = found <= *count;
  *count = found;
  return fits ? kSuccess : kInsufficientSize;
}

unsigned limit_of(const Gpu& gpu) {
  const unsigned set = gpu.set_limit_mw;
  return set == 0 ? gpu.limit_mw : set;
}

// Bit 0: the GPU is idle.
int clock_reasons(const Device* device, unsigned long long* reasons) {
  if (reasons == nullptr) return kInvalidArgument;
  *reasons = library().machine.climate(device->gpu).idle ? 1 : 0;
  return kSuccess;
}

}  // namespace
}  // namespace corral::sim

using namespace corral::sim;

struct Memory1 {
  unsigned long long total, free, used;
};

SIM_EXPORT int nvmlDeviceGetMemoryInfo(const Device* device, Memory1* info) {
  if (const int refused = enter("nvmlDeviceGetMemoryInfo", device)) return refused;
  if (info == nullptr) return kInvalidArgument;
  const Memory memory = memory_of(device);
  *info = {memory.total, memory.free(), memory.reserved + memory.used};
  return kSuccess;
}

struct Memory2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

SIM_EXPORT int nvmlDeviceGetMemoryInfo_v2(const Device* device, Memory2* info) {
  if (const int refused = enter("nvmlDeviceGetMemoryInfo_v2", device)) return refused;
  if (info == nullptr) return kInvalidArgument;
  if (info->version != (sizeof(Memory2) | 2U << 24)) return kVersionMismatch;
  const Memory memory = memory_of(device);
  *info = {info->version, memory.total, memory.reserved, memory.free(), memory.used};
  return kSuccess;
}

SIM_EXPORT int nvmlDeviceGetPowerUsage(const Device* device, unsigned* milliwatts) {
  if (const int refused = enter_gpu("nvmlDeviceGetPowerUsage", device)) return refused;
  return put(library().machine.climate(device->gpu).power_mw, milliwatts);
}

SIM_EXPORT int nvmlDeviceGetClockInfo(const Device* device, int type, unsigned* mhz) {
  if (const int refused = enter_gpu("nvmlDeviceGetClockInfo", device)) return refused;
  const Gpu& gpu = gpu_of(device);
  switch (type) {
    case 0:  // graphics
    case 1:  // SM
      return put(library().machine.climate(device->gpu).clock_mhz, mhz);
    case 2:
      return put(gpu.memory_mhz, mhz);
    case 3:
      return put(gpu.video_mhz, mhz);
    default:
      return kInvalidArgument;
  }
}

SIM_EXPORT int nvmlDeviceGetTemperature(const Device* device, int sensor, unsigned* celsius) {
  if (const int refused = enter_gpu("nvmlDeviceGetTemperature", device)) return refused;
  if (sensor != 0) return kInvalidArgument;
  return put(library().machine.climate(device->gpu).temperature_c, celsius);
}

struct Utilization {
  unsigned gpu, memory;
};

// Nothing computes here.
SIM_EXPORT int nvmlDeviceGetUtilizationRates(const Device* device, Utilization* rates) {
  if (const int refused = enter_gpu("nvmlDeviceGetUtilizationRates", device)) return refused;
  if (rates == nullptr) return kInvalidArgument;
  *rates = {0, 0};
  return kSuccess;
}

SIM_EXPORT int nvmlDeviceGetPerformanceState(const Device* device, int* state) {
  if (const int refused = enter_gpu("nvmlDeviceGetPerformanceState", device)) return refused;
  if (state == nullptr) return kInvalidArgument;
  *state = 0;
  return kSuccess;
}

SIM_EXPORT int nvmlDeviceGetComputeRunningProcesses(const Device* device, unsigned* count,
                                                    ProcessInfo1* infos) {
  if (const int refused = enter("nvmlDeviceGetComputeRunningProcesses", device)) return refused;
  return compute_processes(device, count, infos);
}

SIM_EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(const Device* device, unsigned* count,
                                                       ProcessInfo2* infos) {
  if (const int refused = enter("nvmlDeviceGetComputeRunningProcesses_v2", device)) return refused;
  return compute_processes(device, count, infos);
}

SIM_EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(const Device* device, unsigned* count,
                                                       ProcessInfo2* infos) {
  if (const int refused = enter("nvmlDeviceGetComputeRunningProcesses_v3", device)) return refused;
  return compute_processes(device, count, infos);
}

SIM_EXPORT int nvmlDeviceGetGraphicsRunningProcesses(const Device* device, unsigned* count,
                                                     ProcessInfo1*) {
  if (const int refused = enter("nvmlDeviceGetGraphicsRunningProcesses", device)) return refused;
  return put(0, count);
}

SIM_EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v2(const Device* device, unsigned* count,
                                                        ProcessInfo2*) {
  if (const int refused = enter("nvmlDeviceGetGraphicsRunningProcesses_v2", device)) return refused;
  return put(0, count);
}

SIM_EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(const Device* device, unsigned* count,
                                                        ProcessInfo2*) {
  if (const int refused = enter("nvmlDeviceGetGraphicsRunningProcesses_v3", device)) return refused;
  return put(0, count);
}

SIM_EXPORT int nvmlDeviceGetCurrentClocksEventReasons(const Device* device,
                                                      unsigned long long* reasons) {
  if (const int refused = enter_gpu("nvmlDeviceGetCurrentClocksEventReasons", device))
    return refused;
  return clock_reasons(device, reasons);
}

SIM_EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(const Device* device,
                                                         unsigned long long* reasons) {
  if (const int refused = enter_gpu("nvmlDeviceGetCurrentClocksThrottleReasons", device))
    return refused;
  return clock_reasons(device, reasons);
}

SIM_EXPORT int nvmlDeviceGetPersistenceMode(const Device* device, unsigned* mode) {
  if (const int refused = enter_gpu("nvmlDeviceGetPersistenceMode", device)) return refused;
  return put(gpu_of(device).persistence, mode);
}

SIM_EXPORT int nvmlDeviceGetEnforcedPowerLimit(const Device* device, unsigned* milliwatts) {
  if (const int refused = enter_gpu("nvmlDeviceGetEnforcedPowerLimit", device)) return refused;
  return put(limit_of(gpu_of(device)), milliwatts);
}

SIM_EXPORT int nvmlDeviceGetPowerManagementLimit(const Device* device, unsigned* milliwatts) {
  if (const int refused = enter_gpu("nvmlDeviceGetPowerManagementLimit", device)) return refused;
  return put(limit_of(gpu_of(device)), milliwatts);
}

SIM_EXPORT int nvmlDeviceGetPowerManagementDefaultLimit(const Device* device,
                                                        unsigned* milliwatts) {
  if (const int refused = enter_gpu("nvmlDeviceGetPowerManagementDefaultLimit", device))
    return refused;
  return put(gpu_of(device).limit_mw, milliwatts);
}

// The fault of code -1 makes it a liar: it answers success and sets nothing.
SIM_EXPORT int nvmlDeviceSetPowerManagementLimit(const Device* device, unsigned milliwatts) {
  constexpr int kLies = -1;
  const int refused = enter_gpu("nvmlDeviceSetPowerManagementLimit", device);
  if (refused != kSuccess) return refused == kLies ? kSuccess : refused;
  if (geteuid() != 0) return kNoPermission;
  Gpu& gpu = state().gpus[device->gpu];
  if (milliwatts < gpu.limit_min_mw || milliwatts > gpu.limit_max_mw) return kInvalidArgument;
  gpu.set_limit_mw = milliwatts;
  return kSuccess;
}

SIM_EXPORT int nvmlDeviceGetPowerManagementLimitConstraints(const Device* device, unsigned* least,
                                                            unsigned* most) {
  if (const int refused = enter_gpu("nvmlDeviceGetPowerManagementLimitConstraints", device))
    return refused;
  if (least == nullptr || most == nullptr) return kInvalidArgument;
  *least = gpu_of(device).limit_min_mw;
  *most = gpu_of(device).limit_max_mw;
  return kSuccess;
}

struct FieldValue {
  unsigned field, scope;
  long long timestamp_us, latency_us;
  int type;  // 1: unsigned int
  int result;
  union {
    unsigned number;
    unsigned long long widest;
  } value;
};
static_assert(sizeof(FieldValue) == 40);

SIM_EXPORT int nvmlDeviceGetFieldValues(const Device* device, int count, FieldValue* values) {
  if (const int refused = enter_gpu("nvmlDeviceGetFieldValues", device)) return refused;
  if (values == nullptr || count < 1) return kInvalidArgument;
  const Gpu& gpu = gpu_of(device);
  const Machine::Climate climate = library().machine.climate(device->gpu);
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  for (int i = 0; i < count; ++i) {
    FieldValue& value = values[i];
    value.timestamp_us = static_cast<long long>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1000;
    value.latency_us = 0;
    value.type = 1;
    value.result = kSuccess;
    value.value.widest = 0;
    switch (value.field) {
      case 82:  // memory temperature
        value.value.number = climate.temperature_c;
        break;
      case 185:  // power, mean of a second
      case 186:  // power now
        value.value.number = climate.power_mw;
        break;
      case 187:
        value.value.number = gpu.limit_min_mw;
        break;
      case 188:
        value.value.number = gpu.limit_max_mw;
        break;
      case 189:  // default limit
        value.value.number = gpu.limit_mw;
        break;
      case 190:  // current limit
        value.value.number = limit_of(gpu);
        break;
      default:
        value.result = kNotSupported;
    }
  }
  return kSuccess;
}

// SPDX-License-Identifier: Apache-2.0
// libnvidia-ml.so.1 of the simulated machine: what NVML would tell of it and of the processes that
// use it.
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <atomic>

#include "fault.h"
#include "state.h"

#define SIM_EXPORT extern "C" __attribute__((visibility("default")))

namespace corral::sim {
namespace {

// nvmlReturn_t values, as the NVML reference numbers them.
enum Nvml : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNoPermission = 4,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kVersionMismatch = 25,
};

constexpr unsigned kNotAvailable = ~0U;

// What a nvmlDevice_t points to: a GPU, or a MIG instance of it.
struct Device {
  unsigned gpu;
  int mig;  // -1: the GPU
};

struct Library {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  std::atomic<int> started{0};  // nvmlInit calls without their nvmlShutdown
  Machine machine;
  Faults faults;
  bool node_kept_open[kMaxGpus] = {};
  Device device[kMaxGpus * (1 + kMaxMig)] = {};
};

Library& library() {
  static constinit Library instance;
  return instance;
}

State& state() { return *library().machine.state(); }
const Gpu& gpu_of(const Device* device) { return state().gpus[device->gpu]; }

bool is_ours(const Device* device) {
  const Library& l = library();
  return device >= l.device && device < l.device + kMaxGpus * (1 + kMaxMig) &&
         device->gpu < state().gpu_count;
}

// kSuccess when `function` may go on.
int enter(const char* function) {
  if (library().started == 0) return kUninitialized;
  return library().faults.code(function, -1);
}

int enter(const char* function, const Device* device) {
  if (library().started == 0) return kUninitialized;
  if (!is_ours(device)) return kInvalidArgument;
  return library().faults.code(function, static_cast<int>(device->gpu));
}

// For what only a whole GPU has.
int enter_gpu(const char* function, const Device* device) {
  const int refused = enter(function, device);
  if (refused != kSuccess) return refused;
  return device->mig < 0 ? kSuccess : kNotSupported;
}

Device* handle(unsigned gpu, int mig) {
  Device* device = &library().device[gpu * (1 + kMaxMig) + static_cast<unsigned>(mig + 1)];
  device->gpu = gpu;
  device->mig = mig;
  return device;
}

// A GPU is counted whether or not this process may open it; only its handle needs the node.
int permitted(unsigned gpu) {
  Library& l = library();
  pthread_mutex_lock(&l.mutex);
  char name[32];
  snprintf(name, sizeof name, "nvidia%u", state().gpus[gpu].minor);
  const bool opens = node_opens(l.machine.folder(), name, O_RDWR, !l.node_kept_open[gpu]);
  if (opens) l.node_kept_open[gpu] = true;
  pthread_mutex_unlock(&l.mutex);
  return opens ? kSuccess : kNoPermission;
}

bool instance_opens(const MigInstance& instance) {
  char name[64];
  snprintf(name, sizeof name, "nvidia-caps/nvidia-cap%u", instance.gpu_capability_minor);
  if (!node_opens(library().machine.folder(), name, O_RDONLY, false)) return false;
  snprintf(name, sizeof name, "nvidia-caps/nvidia-cap%u", instance.compute_capability_minor);
  return node_opens(library().machine.folder(), name, O_RDONLY, false);
}

int give_handle(unsigned gpu, int mig, Device** device) {
  if (const int refused = permitted(gpu)) return refused;
  *device = handle(gpu, mig);
  return kSuccess;
}

int copy_text(const char* text, char* buffer, unsigned length) {
  if (buffer == nullptr) return kInvalidArgument;
  if (strlen(text) >= length) return kInsufficientSize;
  strcpy(buffer, text);
  return kSuccess;
}

int put(unsigned value, unsigned* out) {
  if (out == nullptr) return kInvalidArgument;
  *out = value;
  return kSuccess;
}

int start(const char* function) {
  Library& l = library();
  pthread_mutex_lock(&l.mutex);
  l.faults.read("CORRAL_SIM_NVML_FAULT");
  int result = l.faults.code(function, -1);
  if (result == kSuccess && !l.machine.open()) result = kDriverNotLoaded;
  if (result == kSuccess && !node_opens(l.machine.folder(), "nvidiactl", O_RDWR, l.started == 0)) {
    result = kNoPermission;
  }
  if (result == kSuccess) ++l.started;
  pthread_mutex_unlock(&l.mutex);
  return result;
}

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

// The three layouts that the process query has had.
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

bool same_address(const Gpu& gpu, const char* text) {
  unsigned domain = 0, bus = 0, device = 0;
  if (sscanf(text, "%x:%x:%x", &domain, &bus, &device) != 3) {
    domain = 0;
    if (sscanf(text, "%x:%x", &bus, &device) != 2) return false;
  }
  return gpu.pci_domain == domain && gpu.pci_bus == bus && gpu.pci_device == device;
}

const char* error_text(int code) {
  switch (code) {
    case kSuccess:
      return "Success";
    case kUninitialized:
      return "Uninitialized";
    case kInvalidArgument:
      return "Invalid Argument";
    case kNotSupported:
      return "Not Supported";
    case kNoPermission:
      return "Insufficient Permissions";
    case kNotFound:
      return "Not Found";
    case kInsufficientSize:
      return "Insufficient Size";
    case kDriverNotLoaded:
      return "Driver Not Loaded";
    case 15:
      return "GPU is lost";
    case kVersionMismatch:
      return "Argument version mismatch";
    default:
      return "Unknown Error";
  }
}

}  // namespace
}  // namespace corral::sim

using namespace corral::sim;

SIM_EXPORT int nvmlInit_v2() { return start("nvmlInit_v2"); }

SIM_EXPORT int nvmlInitWithFlags(unsigned) { return start("nvmlInitWithFlags"); }

SIM_EXPORT int nvmlShutdown() {
  if (const int refused = enter("nvmlShutdown")) return refused;
  --library().started;
  return kSuccess;
}

SIM_EXPORT const char* nvmlErrorString(int code) { return error_text(code); }

SIM_EXPORT int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  if (const int refused = enter("nvmlSystemGetDriverVersion")) return refused;
  return copy_text(state().driver_version, text, length);
}

SIM_EXPORT int nvmlSystemGetNVMLVersion(char* text, unsigned length) {
  if (const int refused = enter("nvmlSystemGetNVMLVersion")) return refused;
  return copy_text(state().nvml_version, text, length);
}

SIM_EXPORT int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  if (const int refused = enter("nvmlSystemGetCudaDriverVersion_v2")) return refused;
  if (version == nullptr) return kInvalidArgument;
  *version = state().cuda_version;
  return kSuccess;
}

SIM_EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  if (const int refused = enter("nvmlDeviceGetCount_v2")) return refused;
  return put(state().gpu_count, count);
}

SIM_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device** device) {
  if (const int refused = enter("nvmlDeviceGetHandleByIndex_v2")) return refused;
  if (device == nullptr || index >= state().gpu_count) return kInvalidArgument;
  const int fault = library().faults.code("nvmlDeviceGetHandleByIndex_v2", static_cast<int>(index));
  return fault != 0 ? fault : give_handle(index, -1, device);
}

SIM_EXPORT int nvmlDeviceGetHandleByUUID(const char* uuid, Device** device) {
  if (const int refused = enter("nvmlDeviceGetHandleByUUID")) return refused;
  if (uuid == nullptr || device == nullptr) return kInvalidArgument;
  for (unsigned i = 0; i < state().gpu_count; ++i) {
    const Gpu& gpu = state().gpus[i];
    if (strcasecmp(gpu.uuid, uuid) == 0) return give_handle(i, -1, device);
    for (unsigned m = 0; m < gpu.mig_count; ++m) {
      if (strcasecmp(gpu.mig[m].uuid, uuid) != 0) continue;
      return instance_opens(gpu.mig[m]) ? give_handle(i, static_cast<int>(m), device) : kNotFound;
    }
  }
  return kNotFound;
}

SIM_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* text, Device** device) {
  if (const int refused = enter("nvmlDeviceGetHandleByPciBusId_v2")) return refused;
  if (text == nullptr || device == nullptr) return kInvalidArgument;
  for (unsigned i = 0; i < state().gpu_count; ++i) {
    if (same_address(state().gpus[i], text)) return give_handle(i, -1, device);
  }
  return kNotFound;
}

SIM_EXPORT int nvmlDeviceGetName(const Device* device, char* text, unsigned length) {
  if (const int refused = enter("nvmlDeviceGetName", device)) return refused;
  const Gpu& gpu = gpu_of(device);
  if (device->mig < 0) return copy_text(gpu.name, text, length);
  char name[160];
  snprintf(name, sizeof name, "%s MIG %s", gpu.name, gpu.mig[device->mig].profile);
  return copy_text(name, text, length);
}

SIM_EXPORT int nvmlDeviceGetUUID(const Device* device, char* text, unsigned length) {
  if (const int refused = enter("nvmlDeviceGetUUID", device)) return refused;
  const Gpu& gpu = gpu_of(device);
  return copy_text(device->mig < 0 ? gpu.uuid : gpu.mig[device->mig].uuid, text, length);
}

struct PciInfo {
  char legacy_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char id[32];
};

SIM_EXPORT int nvmlDeviceGetPciInfo_v3(const Device* device, PciInfo* info) {
  if (const int refused = enter_gpu("nvmlDeviceGetPciInfo_v3", device)) return refused;
  if (info == nullptr) return kInvalidArgument;
  const Gpu& gpu = gpu_of(device);
  *info = {.legacy_id = {},
           .domain = gpu.pci_domain,
           .bus = gpu.pci_bus,
           .device = gpu.pci_device,
           .device_id = gpu.pci_device_id,
           .subsystem_id = gpu.pci_subsystem_id,
           .id = {}};
  snprintf(info->legacy_id, sizeof info->legacy_id, "%04X:%02X:%02X.0", gpu.pci_domain & 0xffff,
           gpu.pci_bus & 0xff, gpu.pci_device & 0xff);
  snprintf(info->id, sizeof info->id, "%08X:%02X:%02X.0", gpu.pci_domain, gpu.pci_bus,
           gpu.pci_device);
  return kSuccess;
}

SIM_EXPORT int nvmlDeviceGetMinorNumber(const Device* device, unsigned* minor) {
  if (const int refused = enter_gpu("nvmlDeviceGetMinorNumber", device)) return refused;
  return put(gpu_of(device).minor, minor);
}

SIM_EXPORT int nvmlDeviceGetIndex(const Device* device, unsigned* index) {
  if (const int refused = enter("nvmlDeviceGetIndex", device)) return refused;
  return put(device->mig < 0 ? device->gpu : static_cast<unsigned>(device->mig), index);
}

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

SIM_EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(const Device* device, unsigned* count,
                                                        ProcessInfo2*) {
  if (const int refused = enter("nvmlDeviceGetGraphicsRunningProcesses_v3", device)) return refused;
  return put(0, count);
}

SIM_EXPORT int nvmlDeviceGetMigMode(const Device* device, unsigned* current, unsigned* pending) {
  if (const int refused = enter_gpu("nvmlDeviceGetMigMode", device)) return refused;
  if (current == nullptr || pending == nullptr) return kInvalidArgument;
  *current = *pending = gpu_of(device).mig_enabled;
  return kSuccess;
}

SIM_EXPORT int nvmlDeviceGetMaxMigDeviceCount(const Device* device, unsigned* count) {
  if (const int refused = enter_gpu("nvmlDeviceGetMaxMigDeviceCount", device)) return refused;
  return put(gpu_of(device).mig_enabled ? 7 : 0, count);
}

SIM_EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(const Device* device, unsigned index,
                                                   Device** instance) {
  if (const int refused = enter_gpu("nvmlDeviceGetMigDeviceHandleByIndex", device)) return refused;
  if (instance == nullptr) return kInvalidArgument;
  const Gpu& gpu = gpu_of(device);
  if (index >= gpu.mig_count || !instance_opens(gpu.mig[index])) return kNotFound;
  *instance = handle(device->gpu, static_cast<int>(index));
  return kSuccess;
}

SIM_EXPORT int nvmlDeviceIsMigDeviceHandle(const Device* device, unsigned* yes) {
  if (const int refused = enter("nvmlDeviceIsMigDeviceHandle", device)) return refused;
  return put(device->mig >= 0, yes);
}

SIM_EXPORT int nvmlDeviceGetGpuInstanceId(const Device* device, unsigned* id) {
  if (const int refused = enter("nvmlDeviceGetGpuInstanceId", device)) return refused;
  if (device->mig < 0) return kNotSupported;
  return put(gpu_of(device).mig[device->mig].gpu_instance, id);
}

SIM_EXPORT int nvmlDeviceGetComputeInstanceId(const Device* device, unsigned* id) {
  if (const int refused = enter("nvmlDeviceGetComputeInstanceId", device)) return refused;
  if (device->mig < 0) return kNotSupported;
  return put(gpu_of(device).mig[device->mig].compute_instance, id);
}

SIM_EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(const Device* instance,
                                                            Device** device) {
  if (const int refused = enter("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", instance))
    return refused;
  if (device == nullptr || instance->mig < 0) return kInvalidArgument;
  *device = handle(instance->gpu, -1);
  return kSuccess;
}

// Bit 0: the GPU is idle.
SIM_EXPORT int nvmlDeviceGetCurrentClocksEventReasons(const Device* device,
                                                      unsigned long long* reasons) {
  if (const int refused = enter_gpu("nvmlDeviceGetCurrentClocksEventReasons", device))
    return refused;
  if (reasons == nullptr) return kInvalidArgument;
  *reasons = library().machine.climate(device->gpu).idle ? 1 : 0;
  return kSuccess;
}

SIM_EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(const Device* device,
                                                         unsigned long long* reasons) {
  if (const int refused = enter_gpu("nvmlDeviceGetCurrentClocksThrottleReasons", device))
    return refused;
  return nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}

SIM_EXPORT int nvmlDeviceGetPersistenceMode(const Device* device, unsigned* mode) {
  if (const int refused = enter_gpu("nvmlDeviceGetPersistenceMode", device)) return refused;
  return put(gpu_of(device).persistence, mode);
}

SIM_EXPORT int nvmlDeviceGetEnforcedPowerLimit(const Device* device, unsigned* milliwatts) {
  if (const int refused = enter_gpu("nvmlDeviceGetEnforcedPowerLimit", device)) return refused;
  return put(gpu_of(device).limit_mw, milliwatts);
}

SIM_EXPORT int nvmlDeviceGetPowerManagementLimit(const Device* device, unsigned* milliwatts) {
  if (const int refused = enter_gpu("nvmlDeviceGetPowerManagementLimit", device)) return refused;
  return put(gpu_of(device).limit_mw, milliwatts);
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
      case 190:  // current limit
        value.value.number = gpu.limit_mw;
        break;
      default:
        value.result = kNotSupported;
    }
  }
  return kSuccess;
}

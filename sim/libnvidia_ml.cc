// SPDX-License-Identifier: Apache-2.0
// libnvidia-ml.so.1 of the simulated machine: start-up, handles, names and MIG.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "ml.h"

namespace corral::sim {

Library& library() {
  static constinit Library instance;
  return instance;
}

namespace {

bool is_ours(const Device* device) {
  const Library& l = library();
  return device >= l.device && device < l.device + kMaxGpus * (1 + kMaxMig) &&
         device->gpu < state().gpu_count;
}

}  // namespace

int enter(const char* function) {
  if (library().started == 0) return kUninitialized;
  return library().faults.code(function, -1);
}

int enter(const char* function, const Device* device) {
  if (library().started == 0) return kUninitialized;
  if (!is_ours(device)) return kInvalidArgument;
  return library().faults.code(function, static_cast<int>(device->gpu));
}

int enter_gpu(const char* function, const Device* device) {
  const int refused = enter(function, device);
  if (refused != kSuccess) return refused;
  return device->mig < 0 ? kSuccess : kNotSupported;
}

namespace {

Device* handle(unsigned gpu, int mig) {
  Device* device = &library().device[gpu * (1 + kMaxMig) + static_cast<unsigned>(mig + 1)];
  device->gpu = gpu;
  device->mig = mig;
  return device;
}

// A GPU whose node is closed to this process is not there, and the others are renumbered.
void find_gpus(Library& l) {
  l.shown_count = 0;
  for (unsigned gpu = 0; gpu < state().gpu_count; ++gpu) {
    char name[32];
    snprintf(name, sizeof name, "nvidia%u", state().gpus[gpu].minor);
    if (!node_opens(l.machine.folder(), name, O_RDWR, !l.node_kept_open[gpu])) continue;
    l.node_kept_open[gpu] = true;
    l.shown[l.shown_count++] = gpu;
  }
}

// NVML's number of a GPU; kMaxGpus for one that is not shown.
unsigned number_of(unsigned gpu) {
  const Library& l = library();
  for (unsigned i = 0; i < l.shown_count; ++i)
    if (l.shown[i] == gpu) return i;
  return kMaxGpus;
}

bool instance_opens(const MigInstance& instance) {
  char name[64];
  snprintf(name, sizeof name, "nvidia-caps/nvidia-cap%u", instance.gpu_capability_minor);
  if (!node_opens(library().machine.folder(), name, O_RDONLY, false)) return false;
  snprintf(name, sizeof name, "nvidia-caps/nvidia-cap%u", instance.compute_capability_minor);
  return node_opens(library().machine.folder(), name, O_RDONLY, false);
}

int give_handle(unsigned gpu, int mig, Device** device) {
  if (number_of(gpu) == kMaxGpus) return kNotFound;
  *device = handle(gpu, mig);
  return kSuccess;
}

int copy_text(const char* text, char* buffer, unsigned length) {
  if (buffer == nullptr) return kInvalidArgument;
  const std::size_t bytes = strlen(text) + 1;
  if (bytes > length) return kInsufficientSize;
  memcpy(buffer, text, bytes);
  return kSuccess;
}

int start(const char* function) {
  Library& l = library();
  pthread_mutex_lock(&l.mutex);
  if (!l.faults_read) l.faults.read("CORRAL_SIM_NVML_FAULT");
  l.faults_read = true;
  int result = l.faults.code(function, -1);
  if (result == kSuccess && !l.machine.open()) result = kDriverNotLoaded;
  if (result == kSuccess && !node_opens(l.machine.folder(), "nvidiactl", O_RDWR, l.started == 0)) {
    result = kNoPermission;
  }
  if (result == kSuccess && l.started == 0) find_gpus(l);
  if (result == kSuccess) ++l.started;
  pthread_mutex_unlock(&l.mutex);
  return result;
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
  return put(library().shown_count, count);
}

SIM_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device** device) {
  if (library().started == 0) return kUninitialized;
  if (device == nullptr || index >= library().shown_count) return kInvalidArgument;
  const unsigned gpu = library().shown[index];
  const int fault = library().faults.code("nvmlDeviceGetHandleByIndex_v2", static_cast<int>(gpu));
  return fault != 0 ? fault : give_handle(gpu, -1, device);
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
  return put(device->mig < 0 ? number_of(device->gpu) : static_cast<unsigned>(device->mig), index);
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

struct Attributes {
  unsigned multiprocessors, copy_engines, decoders, encoders, jpeg, optical_flow;
  unsigned gpu_slices, compute_slices;
  unsigned long long memory_mib;
};

// Only a MIG instance has them; "3g.40gb" has three slices.
SIM_EXPORT int nvmlDeviceGetAttributes_v2(const Device* device, Attributes* attributes) {
  if (const int refused = enter("nvmlDeviceGetAttributes_v2", device)) return refused;
  if (attributes == nullptr) return kInvalidArgument;
  if (device->mig < 0) return kNotSupported;
  const MigInstance& instance = gpu_of(device).mig[device->mig];
  const auto slices = static_cast<unsigned>(strtoul(instance.profile, nullptr, 10));
  *attributes = {};
  attributes->multiprocessors = instance.multiprocessors;
  attributes->gpu_slices = attributes->compute_slices = slices;
  attributes->memory_mib = instance.memory_bytes / kMiB;
  return kSuccess;
}

SIM_EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(const Device* instance,
                                                            Device** device) {
  if (const int refused = enter("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", instance))
    return refused;
  if (device == nullptr || instance->mig < 0) return kInvalidArgument;
  *device = handle(instance->gpu, -1);
  return kSuccess;
}

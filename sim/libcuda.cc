// SPDX-License-Identifier: Apache-2.0
// libcuda.so.1 of the simulated machine: start-up, devices and errors.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"

namespace corral::sim {

Driver& driver() {
  static constinit Driver instance;
  return instance;
}

int enter(const char* function, int device) {
  Driver& d = driver();
  if (d.forked || d.status == kNotInitialized) return kNotInitialized;
  if (d.status != kSuccess) return kNotInitialized;
  const int gpu = device >= 0 && valid_device(device) ? static_cast<int>(gpu_index(device)) : -1;
  return d.faults.code(function, gpu);
}

bool valid_device(int device) {
  return device >= 0 && device < static_cast<int>(driver().devices.count);
}

unsigned gpu_index(int device) { return driver().devices.device[device].gpu; }

const Gpu& gpu_of(int device) { return driver().machine.state()->gpus[gpu_index(device)]; }

void take_time(unsigned milliseconds) {
  if (driver().fast) return;
  timespec t{.tv_sec = milliseconds / 1000, .tv_nsec = long{milliseconds % 1000} * 1'000'000};
  while (nanosleep(&t, &t) != 0 && errno == EINTR) {
  }
}

namespace {

// The driver names its threads and fails where it may not.
bool may_write_comm() {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/task/%ld/comm", syscall(SYS_gettid));
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT;
  close(fd);
  return true;
}

bool instance_opens(const char* folder, const MigInstance& instance) {
  char name[64];
  snprintf(name, sizeof name, "nvidia-caps/nvidia-cap%u", instance.gpu_capability_minor);
  if (!node_opens(folder, name, O_RDONLY, true)) return false;
  snprintf(name, sizeof name, "nvidia-caps/nvidia-cap%u", instance.compute_capability_minor);
  return node_opens(folder, name, O_RDONLY, true);
}

// Every GPU whose node opens, in CUDA's order. The driver opens them all, whatever the variable
// says.
VisibleList candidates(Machine& machine) {
  const State& state = *machine.state();
  VisibleList list;
  for (unsigned i = 0; i < state.gpu_count; ++i) {
    const Gpu& gpu = state.gpus[i];
    char name[32];
    snprintf(name, sizeof name, "nvidia%u", gpu.minor);
    if (!node_opens(machine.folder(), name, O_RDWR, true)) continue;
    if (!gpu.mig_enabled) {
      if (list.count < kMaxGpus) list.device[list.count++] = {.gpu = i, .mig = -1};
      continue;
    }
    for (unsigned m = 0; m < gpu.mig_count && list.count < kMaxGpus; ++m) {
      if (!instance_opens(machine.folder(), gpu.mig[m])) continue;
      list.device[list.count++] = {.gpu = i, .mig = static_cast<int>(m)};
    }
  }
  const char* order = getenv("CUDA_DEVICE_ORDER");
  if (order != nullptr && strcmp(order, "PCI_BUS_ID") == 0) return list;
  for (unsigned i = 1; i < list.count; ++i) {  // fastest first; equals stay in bus order
    const Visible moving = list.device[i];
    unsigned j = i;
    for (;
         j > 0 && state.gpus[list.device[j - 1].gpu].speed_rank < state.gpus[moving.gpu].speed_rank;
         --j) {
      list.device[j] = list.device[j - 1];
    }
    list.device[j] = moving;
  }
  return list;
}

int initialise(Driver& d) {
  const char* fast = getenv("CORRAL_SIM_FAST");
  d.fast = fast != nullptr && strcmp(fast, "1") == 0;
  if (!d.machine.open()) return kNoDevice;
  if (!may_write_comm()) return kOperatingSystem;
  const char* folder = d.machine.folder();
  if (!node_opens(folder, "nvidiactl", O_RDWR, true)) return kNoDevice;
  const VisibleList all = candidates(d.machine);
  if (!node_opens(folder, "nvidia-uvm", O_RDWR, true)) return kUnknown;
  if (!node_opens(folder, "nvidia-uvm-tools", O_RDWR, true)) return kUnknown;
  d.devices = visible_devices(*d.machine.state(), all, getenv("CUDA_VISIBLE_DEVICES"));
  take_time(240);
  return d.devices.error;
}

void note_fork() {
  if (driver().tried) driver().forked = true;
}

// The mutex must be free in the child.
void before_fork() { pthread_mutex_lock(&driver().mutex); }
void after_fork() { pthread_mutex_unlock(&driver().mutex); }
void in_child() {
  pthread_mutex_unlock(&driver().mutex);
  note_fork();
}

__attribute__((destructor)) void at_exit() {
  if (!driver().forked) driver().machine.leave();
}

bool parse_uuid(const char* text, unsigned char* bytes) {
  const char* p = strchr(text, '-');
  for (int i = 0; p != nullptr && i < 16; ++i) {
    while (*p == '-') ++p;
    unsigned value = 0;
    if (sscanf(p, "%2x", &value) != 1) return false;
    bytes[i] = static_cast<unsigned char>(value);
    p += 2;
  }
  return p != nullptr;
}

struct ErrorText {
  int code;
  const char* name;
  const char* text;
};

constexpr ErrorText kErrors[] = {
    {kSuccess, "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kOperatingSystem, "CUDA_ERROR_OPERATING_SYSTEM",
     "OS call failed or operation not supported on this OS"},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kContextDestroyed, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {kUnknown, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const ErrorText* find_error(int code) {
  for (const ErrorText& error : kErrors) {
    if (error.code == code) return &error;
  }
  return nullptr;
}

}  // namespace
}  // namespace corral::sim

using namespace corral::sim;

SIM_EXPORT int cuInit(unsigned flags) {
  if (flags != 0) return kInvalidValue;
  Driver& d = driver();
  if (d.forked) return kNotInitialized;
  const Locked lock;
  if (!d.tried) {
    pthread_atfork(before_fork, after_fork, in_child);
    d.faults.read("CORRAL_SIM_CUDA_FAULT");
    d.tried = true;
    d.status = initialise(d);
  }
  const int fault = d.faults.code("cuInit", -1);
  return fault != 0 ? fault : d.status.load();
}

SIM_EXPORT int cuDriverGetVersion(int* version) {
  if (version == nullptr) return kInvalidValue;
  Machine machine_of_caller_without_init;
  Machine& machine = driver().machine.is_open() ? driver().machine : machine_of_caller_without_init;
  *version = machine.open() ? machine.state()->cuda_version : 13000;
  return kSuccess;
}

SIM_EXPORT int cuDeviceGetCount(int* count) {
  if (const int refused = enter("cuDeviceGetCount")) return refused;
  if (count == nullptr) return kInvalidValue;
  *count = static_cast<int>(driver().devices.count);
  return kSuccess;
}

SIM_EXPORT int cuDeviceGet(int* device, int ordinal) {
  if (const int refused = enter("cuDeviceGet")) return refused;
  if (device == nullptr) return kInvalidValue;
  if (!valid_device(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

SIM_EXPORT int cuDeviceGetName(char* name, int length, int device) {
  if (const int refused = enter("cuDeviceGetName", device)) return refused;
  if (name == nullptr || length <= 0) return kInvalidValue;
  if (!valid_device(device)) return kInvalidDevice;
  const Visible& visible = driver().devices.device[device];
  const Gpu& gpu = gpu_of(device);
  if (visible.mig < 0) {
    snprintf(name, static_cast<size_t>(length), "%s", gpu.name);
  } else {
    snprintf(name, static_cast<size_t>(length), "%s MIG %s", gpu.name,
             gpu.mig[visible.mig].profile);
  }
  return kSuccess;
}

SIM_EXPORT int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  if (const int refused = enter("cuDeviceGetUuid_v2", device)) return refused;
  if (uuid == nullptr) return kInvalidValue;
  if (!valid_device(device)) return kInvalidDevice;
  const Visible& visible = driver().devices.device[device];
  const Gpu& gpu = gpu_of(device);
  return parse_uuid(visible.mig < 0 ? gpu.uuid : gpu.mig[visible.mig].uuid, uuid) ? kSuccess
                                                                                  : kUnknown;
}

// The older form names the GPU also where the device is a MIG instance of it.
SIM_EXPORT int cuDeviceGetUuid(unsigned char* uuid, int device) {
  if (const int refused = enter("cuDeviceGetUuid", device)) return refused;
  if (uuid == nullptr) return kInvalidValue;
  if (!valid_device(device)) return kInvalidDevice;
  return parse_uuid(gpu_of(device).uuid, uuid) ? kSuccess : kUnknown;
}

SIM_EXPORT int cuDeviceGetPCIBusId(char* text, int length, int device) {
  if (const int refused = enter("cuDeviceGetPCIBusId", device)) return refused;
  if (text == nullptr || length <= 0) return kInvalidValue;
  if (!valid_device(device)) return kInvalidDevice;
  const Gpu& gpu = gpu_of(device);
  snprintf(text, static_cast<size_t>(length), "%04X:%02X:%02X.%X", gpu.pci_domain, gpu.pci_bus,
           gpu.pci_device, gpu.pci_function);
  return kSuccess;
}

SIM_EXPORT int cuDeviceGetByPCIBusId(int* device, const char* text) {
  if (const int refused = enter("cuDeviceGetByPCIBusId")) return refused;
  unsigned domain = 0, bus = 0, slot = 0;
  if (device == nullptr || text == nullptr) return kInvalidValue;
  if (sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) {
    domain = 0;
    if (sscanf(text, "%x:%x", &bus, &slot) != 2) return kInvalidValue;
  }
  for (unsigned i = 0; i < driver().devices.count; ++i) {
    const Gpu& gpu = gpu_of(static_cast<int>(i));
    if (gpu.pci_domain != domain || gpu.pci_bus != bus || gpu.pci_device != slot) continue;
    *device = static_cast<int>(i);
    return kSuccess;
  }
  return kInvalidDevice;
}

SIM_EXPORT int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  if (const int refused = enter("cuDeviceTotalMem_v2", device)) return refused;
  if (bytes == nullptr) return kInvalidValue;
  if (!valid_device(device)) return kInvalidDevice;
  *bytes = memory_total(device);
  return kSuccess;
}

SIM_EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (const int refused = enter("cuDeviceGetAttribute", device)) return refused;
  if (value == nullptr) return kInvalidValue;
  if (!valid_device(device)) return kInvalidDevice;
  const Gpu& gpu = gpu_of(device);
  const Visible& visible = driver().devices.device[device];
  switch (attribute) {
    case 1:  // threads per block
      *value = 1024;
      break;
    case 10:  // warp size
      *value = 32;
      break;
    case 13:  // clock rate, kHz
      *value = static_cast<int>(gpu.context_mhz) * 1000;
      break;
    case 16:
      *value = static_cast<int>(visible.mig < 0 ? gpu.multiprocessors
                                                : gpu.mig[visible.mig].multiprocessors);
      break;
    case 20:  // compute mode: default
      *value = 0;
      break;
    case 33:
      *value = static_cast<int>(gpu.pci_bus);
      break;
    case 34:
      *value = static_cast<int>(gpu.pci_device);
      break;
    case 41:   // unified addressing
    case 83:   // managed memory
    case 102:  // virtual memory management
    case 115:  // memory pools
      *value = 1;
      break;
    case 50:
      *value = static_cast<int>(gpu.pci_domain);
      break;
    case 75:
      *value = static_cast<int>(gpu.compute_major);
      break;
    case 76:
      *value = static_cast<int>(gpu.compute_minor);
      break;
    default:
      *value = 0;
  }
  return kSuccess;
}

SIM_EXPORT int cuGetErrorName(int code, const char** text) {
  if (text == nullptr) return kInvalidValue;
  const ErrorText* error = find_error(code);
  *text = error != nullptr ? error->name : nullptr;
  return error != nullptr ? kSuccess : kInvalidValue;
}

SIM_EXPORT int cuGetErrorString(int code, const char** text) {
  if (text == nullptr) return kInvalidValue;
  const ErrorText* error = find_error(code);
  *text = error != nullptr ? error->text : nullptr;
  return error != nullptr ? kSuccess : kInvalidValue;
}

// The private tables of the real driver are its own. This one has a table with one function, for
// what the real one's tables are feared to do: primary contexts that no exported function makes.
SIM_EXPORT int cuGetExportTable(const void** table, const void* id) {
  if (table == nullptr) return kInvalidValue;
  static constexpr PrivateTable kPrivate = {.bytes = sizeof(PrivateTable),
                                            .activate_primary = activate_primary};
  const bool known = id != nullptr && memcmp(id, kPrivateTableId, sizeof kPrivateTableId) == 0;
  *table = known ? &kPrivate : nullptr;
  return known ? kSuccess : kNotFound;
}

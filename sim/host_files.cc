// SPDX-License-Identifier: Apache-2.0
// Writes what /proc/driver/nvidia and /sys say of the GPUs and their NUMA nodes.
#include "host_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>

#include "base/file.h"

namespace corral::sim {
namespace {

constexpr std::string_view kParams = R"(ResmanDebugLevel: 4294967295
RmLogonRC: 1
ModifyDeviceFiles: 1
DeviceFileUID: 0
DeviceFileGID: 0
DeviceFileMode: 438
InitializeSystemMemoryAllocations: 1
UsePageAttributeTable: 4294967295
EnableMSI: 1
EnablePCIeGen3: 0
MemoryPoolSize: 0
KMallocHeapMaxSize: 0
VMallocHeapMaxSize: 0
IgnoreMMIOCheck: 0
EnableStreamMemOPs: 0
EnableUserNUMAManagement: 1
NvLinkDisable: 0
RmProfilingAdminOnly: 0
PreserveVideoMemoryAllocations: 0
EnableS0ixPowerManagement: 0
S0ixPowerManagementVideoMemoryThreshold: 256
DynamicPowerManagement: 3
DynamicPowerManagementVideoMemoryThreshold: 200
RegisterPCIDriver: 1
EnablePCIERelaxedOrderingMode: 0
EnableResizableBar: 0
EnableGpuFirmware: 18
EnableGpuFirmwareLogs: 2
EnableDbgBreakpoint: 0
OpenRmEnableUnsupportedGpus: 1
DmaRemapPeerMmio: 1
RegistryDwords: ""
RegistryDwordsPerDevice: ""
RmMsg: ""
GpuBlacklist: ""
TemporaryFilePath: ""
ExcludedGpus: ""
)";

// Writes files below one folder; the first failure is kept and ends it.
class Tree {
 public:
  explicit Tree(std::string top) : top_(std::move(top)) {}

  void folder(const std::string& path) {
    std::error_code error;
    std::filesystem::create_directories(top_ + path, error);
    if (error && result_) result_ = fail_sys(top_ + path, error.value());
  }

  void file(const std::string& path, std::string_view text) {
    folder(std::filesystem::path(path).parent_path().string());
    if (auto written = write_file(top_ + path, text); !written && result_) result_ = written;
  }

  const Result<void>& result() const { return result_; }

 private:
  std::string top_;
  Result<void> result_;
};

std::string pci_text(const Gpu& gpu) {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", gpu.pci_domain, gpu.pci_bus, gpu.pci_device,
                     gpu.pci_function);
}

std::string information(const State& state, const Gpu& gpu, const HostGpu& host) {
  return fmt::format(
      "Model: \t\t {}\n"
      "IRQ:   \t\t {}\n"
      "GPU UUID: \t {}\n"
      "Video BIOS: \t {}\n"
      "Bus Type: \t PCIe\n"
      "DMA Size: \t 52 bits\n"
      "DMA Mask: \t 0xfffffffffffff\n"
      "Bus Location: \t {}\n"
      "Device Minor: \t {}\n"
      "GPU Firmware: \t {}\n"
      "GPU Excluded:\t No\n",
      gpu.name, host.irq, gpu.uuid, host.video_bios, pci_text(gpu), gpu.minor,
      state.driver_version);
}

std::string capability(unsigned minor) {
  return fmt::format("DeviceFileMinor: {}\nDeviceFileMode: 292\nDeviceFileModify: 1\n", minor);
}

void write_capabilities(Tree& tree, const Gpu& gpu, std::string& minors) {
  const std::string top = fmt::format("/proc/driver/nvidia/capabilities/gpu{}/mig", gpu.minor);
  for (unsigned m = 0; m < gpu.mig_count; ++m) {
    const MigInstance& instance = gpu.mig[m];
    const std::string gi = fmt::format("/gi{}/access", instance.gpu_instance);
    const std::string ci =
        fmt::format("/gi{}/ci{}/access", instance.gpu_instance, instance.compute_instance);
    tree.file(top + gi, capability(instance.gpu_capability_minor));
    tree.file(top + ci, capability(instance.compute_capability_minor));
    minors += fmt::format("gpu{}{} {}\n", gpu.minor, gi, instance.gpu_capability_minor);
    minors += fmt::format("gpu{}{} {}\n", gpu.minor, ci, instance.compute_capability_minor);
  }
}

void write_pci(Tree& tree, const Gpu& gpu, const HostGpu& host) {
  const std::string top = "/sys/bus/pci/devices/" + pci_text(gpu);
  tree.file(top + "/vendor", fmt::format("0x{:04x}\n", gpu.pci_device_id & 0xffff));
  tree.file(top + "/device", fmt::format("0x{:04x}\n", gpu.pci_device_id >> 16));
  tree.file(top + "/subsystem_vendor", fmt::format("0x{:04x}\n", gpu.pci_subsystem_id & 0xffff));
  tree.file(top + "/subsystem_device", fmt::format("0x{:04x}\n", gpu.pci_subsystem_id >> 16));
  tree.file(top + "/class", "0x030200\n");
  tree.file(top + "/numa_node", fmt::format("{}\n", host.numa_node));
  tree.file(top + "/local_cpulist", host.local_cpus + "\n");
  tree.file(top + "/irq", fmt::format("{}\n", host.irq));
  tree.file(top + "/current_link_speed", host.link_speed + "\n");
  tree.file(top + "/max_link_speed", host.link_speed + "\n");
  tree.file(top + "/current_link_width", fmt::format("{}\n", host.link_width));
  tree.file(top + "/max_link_width", fmt::format("{}\n", host.link_width));
  tree.file(top + "/power/runtime_status", "active\n");
  if (host.drm_card) tree.folder(fmt::format("{}/drm/card{}", top, *host.drm_card));
  if (host.drm_render) tree.folder(fmt::format("{}/drm/renderD{}", top, *host.drm_render));
}

// GPUs of no known node are on the only one: a machine with several says it of each GPU.
void write_numa_nodes(Tree& tree, const Profile& profile, unsigned gpu_count) {
  std::map<int, std::string> cpus;
  for (unsigned i = 0; i < gpu_count; ++i)
    cpus[std::max(profile.host[i].numa_node, 0)] = profile.host[i].local_cpus;
  const std::string top = "/sys/devices/system/node/";
  std::string numbers;
  for (const auto& [node, list] : cpus) {
    numbers += fmt::format("{}{}", numbers.empty() ? "" : ",", node);
    tree.file(fmt::format("{}node{}/cpulist", top, node), list + "\n");
  }
  tree.file(top + "online", numbers + "\n");
  tree.file(top + "has_memory", numbers + "\n");
}

}  // namespace

Result<void> write_host_files(const std::string& folder, const Profile& profile,
                              const NodeNumbers& numbers) {
  const State& state = *profile.state;
  Tree tree(folder);
  tree.file(
      "/proc/driver/nvidia/version",
      fmt::format("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  "
                  "(SIMULATED@corral-sim)  \nGCC version:  gcc version 12.2.0 (GCC) \n",
                  state.driver_version));
  tree.file("/proc/driver/nvidia/params", kParams);
  tree.file("/proc/driver/nvidia/registry", "Binary: \"\"\n");
  tree.file("/proc/driver/nvidia/capabilities/mig/config", capability(1));
  tree.file("/proc/driver/nvidia/capabilities/mig/monitor", capability(2));
  std::string minors = "config 1\nmonitor 2\n";
  for (unsigned i = 0; i < state.gpu_count; ++i) {
    const Gpu& gpu = state.gpus[i];
    tree.file("/proc/driver/nvidia/gpus/" + pci_text(gpu) + "/information",
              information(state, gpu, profile.host[i]));
    write_capabilities(tree, gpu, minors);
    write_pci(tree, gpu, profile.host[i]);
  }
  write_numa_nodes(tree, profile, state.gpu_count);
  tree.file("/proc/driver/nvidia-caps/mig-minors", minors);
  tree.file("/proc/devices",
            fmt::format("Character devices:\n195 nvidia\n195 nvidiactl\n{} nvidia-uvm\n"
                        "{} nvidia-caps\n226 drm\n\nBlock devices:\n",
                        numbers.uvm_major, numbers.caps_major));
  return tree.result();
}

}  // namespace corral::sim

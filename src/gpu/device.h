// SPDX-License-Identifier: Apache-2.0
// What is known of the GPUs of a machine: plain data, filled by gpu/inventory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "host/pci_address.h"

namespace corral::gpu {

// A MIG compute instance, with what grants access to it.
struct MigInstance {
  std::string uuid;  // "MIG-…"
  unsigned gpu_instance_id = 0;
  unsigned compute_instance_id = 0;
  std::string profile;  // "1g.18gb"
  std::optional<std::uint64_t> memory_bytes;
  // /dev/nvidia-caps/nvidia-capN of the GPU instance and of the compute instance.
  std::vector<std::string> capability_nodes;

  bool operator==(const MigInstance&) const = default;
};

struct Gpu {
  unsigned index = 0;  // position in PCI bus order: nvidia-smi's number, never the minor
  std::string uuid;    // "GPU-…"; empty when unknown
  host::PciAddress pci;
  std::string name;                    // "NVIDIA H200"
  std::optional<unsigned> minor;       // N of /dev/nvidiaN
  std::string node;                    // "/dev/nvidia0"; empty when the minor is unknown
  std::vector<std::string> drm_nodes;  // "/dev/dri/card1", "/dev/dri/renderD128"
  std::optional<std::uint64_t> memory_total_bytes;
  std::optional<int> numa_node;
  std::optional<bool> mig_enabled;
  std::vector<MigInstance> mig;
  // Whether this process may open the node as things stand (existing confinement); nullopt: not
  // checked.
  std::optional<bool> accessible;
  // "GPU is lost", "no permission", …: what NVML answered instead of a handle or of its facts;
  // empty when all is well.
  std::string trouble;

  bool operator==(const Gpu&) const = default;
};

struct Inventory {
  enum class Source { none, proc, nvml };

  std::vector<Gpu> gpus;  // in PCI bus order, gpus[i].index == i
  Source source = Source::none;
  std::string driver_version;  // "580.159.04"; empty when unknown
  bool simulated = false;      // the machine of sim/: every output says so
  // In /proc/driver/nvidia but closed to this process, so that NVML does not show them to it either
  // (existing confinement), or excluded by the driver. They have no number and cannot be selected.
  std::vector<Gpu> hidden;
  std::vector<std::string>
      notes;  // degradations by name: "NVML: library not found; read /proc/driver/nvidia"
};

}  // namespace corral::gpu

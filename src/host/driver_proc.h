// SPDX-License-Identifier: Apache-2.0
// /proc/driver/nvidia: what the kernel driver tells without NVML. Formats as driver 580.159 writes
// them; other drivers add lines, so unknown lines are skipped and missing ones are unknown.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "host/pci_address.h"
#include "host/root.h"

namespace corral::host {

// One gpus/ADDRESS/information.
struct DriverGpu {
  PciAddress pci;
  std::string name;               // empty when not in the file
  std::string uuid;               // empty also while the driver writes '?' (GPU never started)
  std::optional<unsigned> minor;  // N of /dev/nvidiaN
  bool excluded = false;          // the driver was told to leave this GPU alone

  bool operator==(const DriverGpu&) const = default;
};

// One capabilities/gpuN/mig/giK/ciL. N is the minor of the GPU.
struct MigCapability {
  unsigned gpu_minor = 0;
  unsigned gpu_instance_id = 0;
  unsigned compute_instance_id = 0;
  std::vector<std::string> nodes;  // "/dev/nvidia-caps/nvidia-capN": GPU instance, compute instance

  bool operator==(const MigCapability&) const = default;
};

struct DriverGpus {
  std::vector<DriverGpu> gpus;      // in PCI bus order
  std::vector<std::string> unread;  // "…/information: Permission denied": GPUs left out, and why
};

// "580.159.04" of the text of /proc/driver/nvidia/version.
Result<std::string> parse_driver_version(std::string_view text);

// `folder` is the file's folder name, which holds the address too; a file cut short keeps what it
// has.
Result<DriverGpu> parse_gpu_information(std::string_view folder, std::string_view text);

// "Key: value" lines, of params and of a capability's access file. A line without a colon is
// skipped.
std::map<std::string, std::string, std::less<>> parse_key_values(std::string_view text);

Result<std::string> read_driver_version(const Root& root);
// The error is only of the folder gpus/ itself.
Result<DriverGpus> read_driver_gpus(const Root& root);
// ModifyDeviceFiles, RmProfilingAdminOnly, …
Result<std::map<std::string, std::string, std::less<>>> read_driver_params(const Root& root);
// Empty where MIG is off or the driver has no such folder. Sorted by GPU minor and ids.
Result<std::vector<MigCapability>> read_mig_capabilities(const Root& root);

}  // namespace corral::host

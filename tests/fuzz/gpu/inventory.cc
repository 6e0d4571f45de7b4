// SPDX-License-Identifier: Apache-2.0
// Any bytes as the files of a driver without NVML. The input is cut at 0xff into: the version, the
// information of two GPUs, a capability, numa_node, and texts of a process.
#include "gpu/inventory.h"

#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "base/file.h"
#include "base/text.h"
#include "host/driver_proc.h"
#include "host/proc.h"

namespace {

using namespace corral;

void require(bool holds) {
  if (!holds) std::abort();
}

std::string make_root() {
  std::string root = (std::filesystem::temp_directory_path() / "corral-fuzz-XXXXXX").string();
  require(::mkdtemp(root.data()) != nullptr);
  for (const char* folder :
       {"/proc/driver/nvidia/gpus/0000:00:06.0", "/proc/driver/nvidia/gpus/0000:00:07.0",
        "/proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0",
        "/sys/bus/pci/devices/0000:00:06.0/drm/card1", "/sys/bus/pci/devices/0000:00:07.0"})
    std::filesystem::create_directories(root + folder);
  require(write_file(root + "/proc/driver/nvidia/capabilities/gpu0/mig/gi1/access",
                     "DeviceFileMinor: 3\n")
              .has_value());
  return root;
}

// Removed when the fuzzer ends, not when it is killed.
struct Root {
  std::string path = make_root();
  ~Root() { std::filesystem::remove_all(path); }
};

void check(const gpu::Inventory& inventory) {
  require(inventory.gpus.size() + inventory.hidden.size() == 2);
  for (std::size_t i = 0; i < inventory.gpus.size(); ++i) {
    const gpu::Gpu& gpu = inventory.gpus[i];
    require(gpu.index == i);
    require(gpu.uuid.empty() || gpu.uuid.size() == 40);
    require(gpu.node.empty() == !gpu.minor);
    require(gpu.mig.size() <= 1);
    for (const auto& instance : gpu.mig) require(instance.capability_nodes.size() == 2);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Root root;
  static constexpr const char* kFiles[] = {
      "/proc/driver/nvidia/version",
      "/proc/driver/nvidia/gpus/0000:00:06.0/information",
      "/proc/driver/nvidia/gpus/0000:00:07.0/information",
      "/proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access",
      "/sys/bus/pci/devices/0000:00:06.0/numa_node",
  };
  const auto parts = split(std::string_view(reinterpret_cast<const char*>(data), size), '\xff');
  static std::string written[std::size(kFiles)];
  static bool first = true;
  std::size_t part = 0;
  for (std::size_t i = 0; i < std::size(kFiles); ++i) {
    const std::string_view text = part < parts.size() ? parts[part++] : "";
    if (!first && text == written[i]) continue;  // a mutation changes one file at a time
    require(write_file(root.path + kFiles[i], text).has_value());
    written[i] = text;
  }
  first = false;
  check(gpu::read_inventory(host::Root(root.path), nullptr));

  for (; part < parts.size(); ++part) {
    if (const auto gpu = host::parse_gpu_information(parts[part], parts.back()))
      require(host::PciAddress::parse(gpu->pci.text()) == gpu->pci);
    (void)host::parse_stat(parts[part]);
    (void)host::parse_status(parts[part]);
    for (const std::string& path : host::parse_mapped_files(parts[part])) require(path[0] == '/');
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Merging what NVML, /proc/driver/nvidia and /sys say of the GPUs.
#include "gpu/inventory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "host/driver_proc.h"
#include "host/pci.h"

namespace corral::gpu {
namespace {

// A GPU as NVML counts it, before its address is known for sure.
struct Counted {
  Gpu gpu;
  bool placed = false;  // `gpu.pci` is known
};

// The value, or nullopt with the first grave reason kept in `trouble`.
template <class T>
std::optional<T> keep(NvmlResult<T> result, std::string& trouble) {
  if (result) return *std::move(result);
  const NvmlReturn code = result.error().code;
  if (trouble.empty() && code != NvmlReturn::not_supported &&
      code != NvmlReturn::function_not_found)
    trouble = describe(code);
  return std::nullopt;
}

// "NVIDIA H200 MIG 1g.18gb" names the profile after the GPU.
std::string profile_of(const std::string& name) {
  constexpr std::string_view kMig = " MIG ";
  const auto at = name.rfind(kMig);
  return at == std::string::npos ? std::string() : name.substr(at + kMig.size());
}

void read_mig(const Nvml& nvml, NvmlDevice device, Gpu& gpu, std::vector<std::string>& notes) {
  const auto enabled = nvml.mig_enabled(device);
  if (!enabled) {
    if (enabled.error().code == NvmlReturn::not_supported) gpu.mig_enabled = false;
    return;
  }
  gpu.mig_enabled = *enabled;
  if (!*enabled) return;
  const auto instances = nvml.mig_instances(device);
  if (!instances) {
    notes.push_back(
        fmt::format("MIG instances of GPU {} unknown: {}", gpu.uuid, instances.error().text()));
    return;
  }
  for (const NvmlInstance& found : *instances) {
    MigInstance instance;
    instance.gpu_instance_id = found.gpu_instance_id;
    instance.compute_instance_id = found.compute_instance_id;
    instance.uuid = nvml.uuid(found.device).value_or("");
    instance.profile = profile_of(nvml.name(found.device).value_or(""));
    if (const auto bytes = nvml.mig_memory_bytes(found.device)) instance.memory_bytes = *bytes;
    gpu.mig.push_back(std::move(instance));
  }
}

Counted read_counted(const Nvml& nvml, unsigned index, std::vector<std::string>& notes) {
  Counted out;
  std::string& trouble = out.gpu.trouble;
  const auto device = keep(nvml.device(index), trouble);
  if (!device) {
    if (trouble.empty()) trouble = "no handle";
    return out;
  }
  if (const auto pci = keep(nvml.pci(*device), trouble)) {
    out.gpu.pci = *pci;
    out.placed = true;
  }
  out.gpu.uuid = keep(nvml.uuid(*device), trouble).value_or("");
  out.gpu.name = keep(nvml.name(*device), trouble).value_or("");
  out.gpu.minor = keep(nvml.minor(*device), trouble);
  if (const auto memory = keep(nvml.memory(*device), trouble); memory && memory->total_bytes > 0)
    out.gpu.memory_total_bytes = memory->total_bytes;
  read_mig(nvml, *device, out.gpu, notes);
  return out;
}

Gpu from_proc(const host::DriverGpu& known) {
  Gpu gpu;
  gpu.pci = known.pci;
  gpu.uuid = known.uuid;
  gpu.name = known.name;
  gpu.minor = known.minor;
  if (known.excluded) gpu.trouble = "excluded by the driver";
  return gpu;
}

// Where NVML and /proc both speak, NVML stays.
void complete(Gpu& gpu, const host::DriverGpu& known) {
  gpu.pci = known.pci;
  if (gpu.uuid.empty()) gpu.uuid = known.uuid;
  if (gpu.name.empty()) gpu.name = known.name;
  if (!gpu.minor) gpu.minor = known.minor;
}

// Gives NVML's GPUs their /proc entries; what is left over in `known` NVML does not show.
void place(std::vector<Counted>& counted, std::vector<host::DriverGpu>& known) {
  const auto take = [&](Counted& one, auto matches) {
    const auto it = std::ranges::find_if(known, matches);
    if (it == known.end()) return;
    complete(one.gpu, *it);
    one.placed = true;
    known.erase(it);
  };
  for (Counted& one : counted)
    if (one.placed) take(one, [&](const auto& gpu) { return gpu.pci == one.gpu.pci; });
  for (Counted& one : counted)
    if (!one.placed && !one.gpu.uuid.empty())
      take(one, [&](const auto& gpu) { return gpu.uuid == one.gpu.uuid; });
  // The rest answered with no fact at all. NVML counts in PCI bus order, as `known` is sorted:
  // when as many are left on both sides they are the same ones. Else nothing is guessed.
  const auto left = std::ranges::count_if(counted, [](const Counted& c) { return !c.placed; });
  const auto usable = std::ranges::count_if(known, [](const auto& gpu) { return !gpu.excluded; });
  if (left != usable) return;
  for (Counted& one : counted)
    if (!one.placed) take(one, [](const auto& gpu) { return !gpu.excluded; });
}

// NVML's GPUs into `inventory`; false when NVML does not even count them.
bool list_from_nvml(const Nvml& nvml, std::vector<host::DriverGpu> known, Inventory& inventory) {
  const auto count = nvml.device_count();
  if (!count) {
    inventory.notes.push_back("NVML: " + count.error().text());
    return false;
  }
  std::vector<Counted> counted;
  for (unsigned i = 0; i < *count; ++i) counted.push_back(read_counted(nvml, i, inventory.notes));
  place(counted, known);

  const bool all_placed = std::ranges::all_of(counted, &Counted::placed);
  if (all_placed)
    std::ranges::sort(counted, {}, [](const Counted& one) { return one.gpu.pci; });
  else
    inventory.notes.push_back(
        "NVML gives no address of a GPU that it counts: kept in NVML's order");
  for (Counted& one : counted) inventory.gpus.push_back(std::move(one.gpu));
  for (const host::DriverGpu& gpu : known) {
    inventory.hidden.push_back(from_proc(gpu));
    if (!gpu.excluded) inventory.hidden.back().trouble = "not shown by NVML";
  }
  inventory.source = Inventory::Source::nvml;
  return true;
}

void list_from_proc(const std::vector<host::DriverGpu>& known, Inventory& inventory) {
  for (const host::DriverGpu& gpu : known)
    (gpu.excluded ? inventory.hidden : inventory.gpus).push_back(from_proc(gpu));
  inventory.source = Inventory::Source::proc;
}

void add_mig_nodes(const std::vector<host::MigCapability>& capabilities, bool have_nvml, Gpu& gpu) {
  for (const host::MigCapability& capability : capabilities) {
    if (capability.gpu_minor != gpu.minor) continue;
    const auto it = std::ranges::find_if(gpu.mig, [&](const MigInstance& instance) {
      return instance.gpu_instance_id == capability.gpu_instance_id &&
             instance.compute_instance_id == capability.compute_instance_id;
    });
    if (it != gpu.mig.end()) {
      it->capability_nodes = capability.nodes;
    } else if (!have_nvml) {
      MigInstance instance;
      instance.gpu_instance_id = capability.gpu_instance_id;
      instance.compute_instance_id = capability.compute_instance_id;
      instance.capability_nodes = capability.nodes;
      gpu.mig.push_back(std::move(instance));
      gpu.mig_enabled = true;
    }
  }
}

// Nodes and places, which only the kernel knows.
void add_host_facts(const host::Root& hardware, Gpu& gpu, std::vector<std::string>& notes) {
  if (gpu.minor) gpu.node = hardware.path(fmt::format("/dev/nvidia{}", *gpu.minor));
  if (auto nodes = host::drm_nodes(hardware, gpu.pci))
    gpu.drm_nodes = *std::move(nodes);
  else
    notes.push_back(fmt::format("DRM nodes of {} unknown: {}", gpu.pci.text(), nodes.error().what));
  if (const auto node = host::numa_node(hardware, gpu.pci)) gpu.numa_node = *node;
}

void number(Inventory& inventory) {
  for (unsigned i = 0; i < inventory.gpus.size(); ++i) inventory.gpus[i].index = i;
}

// Whether an open() that failed with `error` was stopped before the driver saw it; nullopt: the
// failure is ours.
std::optional<bool> permitted(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
      return false;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return std::nullopt;
    default:  // EIO, ENODEV, ENXIO, EBUSY: the driver's own answer
      return true;
  }
}

// Whether AppArmor confines this process. It is asked about paths at open only.
bool has_apparmor_profile() {
  const auto label = read_file("/proc/self/attr/apparmor/current");
  return label && trim(*label) != "unconfined";
}

// Whether something may refuse to open nodes that access(2) does not hear of. That call asks the
// owner and mode, the device rules of the cgroup and SELinux (all of them in inode_permission() of
// the kernel). Landlock is asked at open only, and the kernel does not tell who is in a domain, but
// whoever enters one must have no_new_privs, which stays. A process with CAP_SYS_ADMIN may enter
// without: its GPUs are then counted too many, and selecting such a one fails in the self-test
// before the job starts.
bool opening_may_differ() {
  return ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 0 || has_apparmor_profile();
}

bool is_on_nodev_mount(const std::string& path) {
  struct statvfs mount{};
  return ::statvfs(path.c_str(), &mount) != 0 || (mount.f_flag & ST_NODEV) != 0;
}

// /dev/null over the node: what a private mount does to refuse it. It opens, and is no GPU.
bool is_covered(const std::string& path) {
  struct stat node{};
  struct stat null{};
  return ::stat(path.c_str(), &node) == 0 && ::stat("/dev/null", &null) == 0 &&
         S_ISCHR(node.st_mode) && node.st_rdev == null.st_rdev;
}

std::optional<bool> probe_node(const std::string& node, bool always_open) {
  if (::faccessat(AT_FDCWD, node.c_str(), R_OK | W_OK, AT_EACCESS) != 0) return permitted(errno);
  if (is_covered(node)) return false;
  if (!always_open && !is_on_nodev_mount(node)) return true;
  // O_NONBLOCK: the driver then answers before it has started a sleeping GPU.
  const auto fd = open_file(node, O_RDWR | O_NONBLOCK);
  return fd ? true : permitted(fd.error().sys);
}

}  // namespace

Inventory read_inventory(const host::Root& hardware, const Nvml* nvml) {
  Inventory inventory;
  std::vector<host::DriverGpu> known;
  auto proc = host::read_driver_gpus(hardware);
  if (proc) {
    known = std::move(proc->gpus);
    for (std::string& unread : proc->unread) inventory.notes.push_back(std::move(unread));
  }

  const bool have_nvml = nvml != nullptr && list_from_nvml(*nvml, known, inventory);
  if (!have_nvml && proc) list_from_proc(known, inventory);
  if (!have_nvml && !proc)
    inventory.notes.push_back(fmt::format("no NVIDIA driver found: {}", proc.error().what));
  if (inventory.source == Inventory::Source::none) return inventory;

  if (have_nvml) inventory.driver_version = nvml->driver_version().value_or("");
  if (inventory.driver_version.empty())
    inventory.driver_version = host::read_driver_version(hardware).value_or("");

  const auto capabilities = host::read_mig_capabilities(hardware);
  if (!capabilities)
    inventory.notes.push_back("MIG capability nodes unknown: " + capabilities.error().what);
  for (std::vector<Gpu>* list : {&inventory.gpus, &inventory.hidden}) {
    for (Gpu& gpu : *list) {
      add_host_facts(hardware, gpu, inventory.notes);
      if (capabilities) add_mig_nodes(*capabilities, have_nvml, gpu);
    }
  }
  number(inventory);
  return inventory;
}

void probe_access(Inventory& inventory) {
  const bool always_open = opening_may_differ();
  for (std::vector<Gpu>* list : {&inventory.gpus, &inventory.hidden})
    for (Gpu& gpu : *list)
      if (!gpu.node.empty()) gpu.accessible = probe_node(gpu.node, always_open);
}

void hide_closed(Inventory& inventory) {
  const auto closed = std::ranges::stable_partition(
      inventory.gpus, [](const Gpu& gpu) { return gpu.accessible != false; });
  for (Gpu& gpu : closed) {
    gpu.trouble = "its node cannot be opened";
    gpu.index = 0;
    inventory.hidden.push_back(std::move(gpu));
  }
  inventory.gpus.erase(closed.begin(), closed.end());
  std::ranges::sort(inventory.hidden, {}, &Gpu::pci);
  number(inventory);
}

}  // namespace corral::gpu

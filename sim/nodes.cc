// SPDX-License-Identifier: Apache-2.0
// Makes device nodes that real device rules act on and that no real driver answers.
#include "nodes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/text.h"

namespace corral::sim {
namespace {

constexpr unsigned kNvidiaMajor = 195;
constexpr unsigned kDrmMajor = 226;
constexpr unsigned kMissed = 254;  // a minor that is neither a GPU nor nvidiactl

// Majors of character devices that a driver of this kernel holds.
std::set<unsigned> held_majors() {
  std::set<unsigned> majors;
  const auto text = read_file("/proc/devices");
  if (!text) return majors;
  for (const std::string_view line : split(*text, '\n')) {
    if (line.starts_with("Block")) break;
    const std::string_view trimmed = trim(line);
    if (const auto major = parse_number<unsigned>(trimmed.substr(0, trimmed.find(' ')))) {
      majors.insert(*major);
    }
  }
  return majors;
}

// The highest number of the kernel's dynamic range that nothing holds; taken from now on.
unsigned take_free_major(std::set<unsigned>& held) {
  unsigned major = 511;
  while (held.contains(major)) --major;
  held.insert(major);
  return major;
}

class Maker {
 public:
  Maker(std::string dev, bool devices) : dev_(std::move(dev)), devices_(devices) {}

  Result<void> make(const std::string& name, unsigned major_number, unsigned minor_number,
                    unsigned mode, bool as_device = true) {
    const std::string path = dev_ + "/" + name;
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
    const bool device = devices_ && as_device;
    const int made = device
                         ? mknod(path.c_str(), S_IFCHR | mode, makedev(major_number, minor_number))
                         : mknod(path.c_str(), S_IFREG | mode, 0);
    if (made != 0 || chmod(path.c_str(), mode) != 0) return fail_sys(path, errno);
    return {};
  }

 private:
  std::string dev_;
  bool devices_;
};

Result<void> make_gpu_nodes(Maker& maker, const Profile& profile, const NodeNumbers& numbers,
                            bool drm_free) {
  for (unsigned i = 0; i < profile.state->gpu_count; ++i) {
    const Gpu& gpu = profile.state->gpus[i];
    const HostGpu& host = profile.host[i];
    CORRAL_CHECK(maker.make(fmt::format("nvidia{}", gpu.minor), kNvidiaMajor, gpu.minor, 0666));
    if (host.drm_card) {
      CORRAL_CHECK(maker.make(fmt::format("dri/card{}", *host.drm_card), kDrmMajor, *host.drm_card,
                              0666, drm_free));
    }
    if (host.drm_render) {
      CORRAL_CHECK(maker.make(fmt::format("dri/renderD{}", *host.drm_render), kDrmMajor,
                              *host.drm_render, 0666, drm_free));
    }
    for (unsigned m = 0; m < gpu.mig_count; ++m) {
      for (const unsigned minor :
           {gpu.mig[m].gpu_capability_minor, gpu.mig[m].compute_capability_minor}) {
        const std::string name = fmt::format("nvidia-caps/nvidia-cap{}", minor);
        const auto made = maker.make(name, numbers.caps_major, minor, 0444);
        // Compute instances of one GPU instance share its node.
        if (!made && made.error().sys != EEXIST) return made;
      }
    }
  }
  return {};
}

}  // namespace

bool device_nodes_work(const std::string& place) {
  if (geteuid() != 0 || held_majors().contains(kNvidiaMajor)) return false;
  const std::string path = fmt::format("{}/.node-{}", place, getpid());
  if (mknod(path.c_str(), S_IFCHR | 0600, makedev(kNvidiaMajor, kMissed)) != 0) return false;
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  const int reason = errno;
  if (fd >= 0) close(fd);
  unlink(path.c_str());
  return fd >= 0 || reason == ENXIO || reason == ENODEV;
}

Result<NodeNumbers> make_nodes(const std::string& folder, const Profile& profile) {
  std::set<unsigned> held = held_majors();
  const bool drm_free = !held.contains(kDrmMajor);
  NodeNumbers numbers;
  numbers.devices = device_nodes_work(folder);
  numbers.uvm_major = take_free_major(held);
  numbers.caps_major = take_free_major(held);
  if (numbers.devices) {
    numbers.about =
        "The nodes in dev/ are character devices without a driver: cgroup device rules act on "
        "them.";
  } else if (held.contains(kNvidiaMajor)) {
    numbers.about =
        "A real NVIDIA driver is loaded, so the nodes in dev/ are plain files: cgroup device rules "
        "cannot act on "
        "them.";
  } else {
    numbers.about =
        "The nodes in dev/ are plain files, for device nodes cannot be made and opened here: "
        "cgroup device rules "
        "cannot act on them.";
  }
  Maker maker(folder + "/dev", numbers.devices);
  CORRAL_CHECK(make_gpu_nodes(maker, profile, numbers, drm_free));
  CORRAL_CHECK(maker.make("nvidiactl", kNvidiaMajor, 255, 0666));
  CORRAL_CHECK(maker.make("nvidia-uvm", numbers.uvm_major, 0, 0666));
  CORRAL_CHECK(maker.make("nvidia-uvm-tools", numbers.uvm_major, 1, 0666));
  CORRAL_CHECK(maker.make("nvidia-caps/nvidia-cap1", numbers.caps_major, 1, 0400));
  CORRAL_CHECK(maker.make("nvidia-caps/nvidia-cap2", numbers.caps_major, 2, 0444));
  return numbers;
}

}  // namespace corral::sim

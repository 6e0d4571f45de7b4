// SPDX-License-Identifier: Apache-2.0
// What a simulated machine is, read from profiles/NAME.json.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "state.h"

namespace corral::sim {

// What only /proc and /sys tell of a GPU.
struct HostGpu {
  unsigned irq = 0;
  std::string video_bios;
  int numa_node = -1;
  std::string local_cpus;  // "0-31"
  std::string link_speed;  // "32.0 GT/s PCIe"
  unsigned link_width = 16;
  std::optional<unsigned> drm_card;    // N of /dev/dri/cardN
  std::optional<unsigned> drm_render;  // N of /dev/dri/renderDN
};

struct Profile {
  std::unique_ptr<State> state;  // ready to be written; state->gpus[i] goes with host[i]
  std::vector<HostGpu> host;
};

// Reads the text of a profile. Errors name the GPU and the field.
Result<Profile> parse_profile(const std::string& text);

}  // namespace corral::sim

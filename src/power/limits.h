// SPDX-License-Identifier: Apache-2.0
// The power limits of a card, and which change of them is allowed.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "gpu/device.h"
#include "gpu/nvml.h"

namespace corral::power {

// In milliwatts, as NVML has them; nullopt: not known, `unknown` says why.
struct Limits {
  std::optional<unsigned> requested_mw;
  std::optional<unsigned> enforced_mw;  // the lowest of all limits that hold now
  std::optional<unsigned> default_mw;
  std::optional<unsigned> min_mw;
  std::optional<unsigned> max_mw;
  std::optional<double> draw_w;
  std::vector<std::string> unknown;  // "nvmlDeviceGetPowerUsage: not supported"
};

struct Card {
  unsigned index = 0;  // nvidia-smi's number
  std::string uuid;
  gpu::NvmlDevice device;
};

// The card behind an inventory's GPU. Its UUID is compared: a limit must not be set on another card
// than the one that was named.
Result<Card> find_card(const gpu::Nvml& nvml, const gpu::Gpu& gpu);

Limits read_limits(const gpu::Nvml& nvml, gpu::NvmlDevice device);

// "200 W", "212.5 W".
std::string watts(unsigned milliwatts);

struct Change {
  Card card;
  unsigned before_mw = 0;
  unsigned set_mw = 0;
};

// The change of every card to `milliwatts`. The error names every card that does not allow it and
// its range.
Result<std::vector<Change>> plan_cap(const gpu::Nvml& nvml, const std::vector<Card>& cards,
                                     unsigned milliwatts);

// Whether the driver will let this process set a limit: it wants root, and root of the host, not of
// a user namespace. `uid_map` is the text of /proc/self/uid_map.
Result<void> check_rights(uid_t euid, std::string_view uid_map);

}  // namespace corral::power

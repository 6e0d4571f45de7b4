// SPDX-License-Identifier: Apache-2.0
#include "power/limits.h"

#include <fmt/format.h>

#include <sstream>

#include "base/text.h"

namespace corral::power {
namespace {

template <class To, class From>
void take(const gpu::NvmlResult<From>& from, std::optional<To>& to, Limits& limits) {
  if (from)
    to = *from;
  else
    limits.unknown.push_back(from.error().text());
}

Result<Change> plan_one(const gpu::Nvml& nvml, const Card& card, unsigned milliwatts) {
  const auto name = [&] { return fmt::format("GPU {} ({})", card.index, card.uuid); };
  const auto before = nvml.power_limit_mw(card.device);
  if (!before) return fail(name() + ": " + before.error().text());
  if (*before == 0) return fail(name() + ": the driver gives 0 W as the limit that holds");
  const auto range = nvml.power_limit_range(card.device);
  if (!range) return fail(name() + ": " + range.error().text());
  if (milliwatts < range->min_mw || milliwatts > range->max_mw)
    return fail(fmt::format("{}: {} is outside of what it takes, {} to {}", name(),
                            watts(milliwatts), watts(range->min_mw), watts(range->max_mw)));
  return Change{card, *before, milliwatts};
}

}  // namespace

Result<Card> find_card(const gpu::Nvml& nvml, const gpu::Gpu& gpu) {
  const auto name = [&] { return fmt::format("GPU {} ({})", gpu.index, gpu.pci.text()); };
  const auto device = nvml.device(gpu.pci);
  if (!device) return fail(name() + ": " + device.error().text());
  const auto uuid = nvml.uuid(*device);
  if (!uuid) return fail(name() + ": " + uuid.error().text());
  if (!gpu.uuid.empty() && *uuid != gpu.uuid)
    return fail(fmt::format("{}: NVML says it is {}, /proc says {}", name(), *uuid, gpu.uuid),
                "the driver and its library are not of one machine: see LD_LIBRARY_PATH");
  return Card{gpu.index, *uuid, *device};
}

Limits read_limits(const gpu::Nvml& nvml, gpu::NvmlDevice device) {
  Limits limits;
  take(nvml.power_limit_mw(device), limits.requested_mw, limits);
  take(nvml.enforced_power_limit_mw(device), limits.enforced_mw, limits);
  take(nvml.default_power_limit_mw(device), limits.default_mw, limits);
  take(nvml.power_w(device), limits.draw_w, limits);
  const auto range = nvml.power_limit_range(device);
  if (range) {
    limits.min_mw = range->min_mw;
    limits.max_mw = range->max_mw;
  } else {
    limits.unknown.push_back(range.error().text());
  }
  return limits;
}

std::string watts(unsigned milliwatts) { return fmt::format("{} W", milliwatts / 1000.0); }

Result<std::vector<Change>> plan_cap(const gpu::Nvml& nvml, const std::vector<Card>& cards,
                                     unsigned milliwatts) {
  std::vector<Change> changes;
  std::vector<std::string> reasons;
  for (const Card& card : cards) {
    if (auto change = plan_one(nvml, card, milliwatts))
      changes.push_back(*std::move(change));
    else
      reasons.push_back(change.error().what);
  }
  if (!reasons.empty())
    return fail(join(reasons, "; "), "nothing was changed; corral power show has every range");
  return changes;
}

Result<void> check_rights(uid_t euid, std::string_view uid_map) {
  if (euid != 0)
    return fail("setting a power limit needs root, and this is user " + std::to_string(euid),
                "nothing was changed; sudo corral power cap …");
  // "inside outside length": the host's own namespace maps every uid to itself
  // (user_namespaces(7)).
  std::istringstream words{std::string(uid_map)};
  std::uint64_t inside = 0;
  std::uint64_t outside = 0;
  std::uint64_t length = 0;
  constexpr std::uint64_t kAll = 4294967295;
  if (words >> inside >> outside >> length && (inside != 0 || outside != 0 || length != kAll))
    return fail(
        "setting a power limit needs root of the host, and this is root of a user namespace",
        "nothing was changed; run it outside of the container");
  return {};
}

}  // namespace corral::power

// SPDX-License-Identifier: Apache-2.0
#include "power/recovery.h"

#include <fmt/format.h>

#include <algorithm>

#include "power/cap.h"
#include "power/limits.h"

namespace corral::power {
namespace {

std::string put_aside(const std::string& path, const std::string& why, const std::string& advice,
                      bool set) {
  const std::string text = fmt::format("power journal {}: {}; it is not obeyed", path, why);
  if (!set) return fmt::format("{} ({})", text, advice);
  const auto aside = set_aside(path);
  return aside ? fmt::format("{} and now called {} ({})", text, *aside, advice)
               : fmt::format("{} ({}); {}", text, advice, aside.error().what);
}

// The card of a journal, with its range.
struct Target {
  Card card;
  gpu::NvmlPowerRange range;
};

Result<Target> target(const gpu::Nvml& nvml, const gpu::Inventory& inventory,
                      const JournalEntry& entry) {
  const auto gpu = std::ranges::find(inventory.gpus, entry.gpu, &gpu::Gpu::uuid);
  if (gpu == inventory.gpus.end())
    return fail(entry.gpu + " is not here, or closed to this process");
  Target out;
  CORRAL_TRY(out.card, find_card(nvml, *gpu));
  const auto range = nvml.power_limit_range(out.card.device);
  if (!range) return fail(fmt::format("GPU {}: {}", gpu->index, range.error().text()));
  out.range = *range;
  return out;
}

std::string recover_one(const gpu::Nvml& nvml, const gpu::Inventory& inventory,
                        const Journal& journal, std::string_view boot_id, bool set) {
  const JournalEntry& entry = journal.entry;
  if (entry.boot_id != boot_id)
    return put_aside(journal.path, "from another boot", "a restart has reset the limits", set);
  const auto found = target(nvml, inventory, entry);
  if (!found)
    return fmt::format(
        "power journal {}: {}; the limit of {} before the cap was {}, and the next "
        "corral power tries again",
        journal.path, found.error().what, entry.gpu, watts(entry.before_mw));
  if (entry.before_mw < found->range.min_mw || entry.before_mw > found->range.max_mw)
    return put_aside(journal.path,
                     fmt::format("it wants {}, and the card takes {} to {}", watts(entry.before_mw),
                                 watts(found->range.min_mw), watts(found->range.max_mw)),
                     "see corral power show, and set what you want", set);
  const std::string why = fmt::format("pid {}, which had capped it, is gone", entry.pid);
  if (!set)
    return fmt::format("GPU {}: {}; corral power show would put back {}", found->card.index, why,
                       watts(entry.before_mw));
  return fmt::format("{} ({})", put_back(nvml, found->card, journal).text, why);
}

}  // namespace

Result<std::string> journal_folder(const gpu::Machine& machine, uid_t uid, const char* state_home,
                                   const char* home) {
  if (machine.simulated) return machine.hardware.path("/run/corral");
  if (uid == 0) return std::string("/run/corral");
  const auto is_absolute = [](const char* path) { return path != nullptr && *path == '/'; };
  if (is_absolute(state_home)) return std::string(state_home) + "/corral";
  if (is_absolute(home)) return std::string(home) + "/.local/state/corral";
  return fail("no folder for the power journal: neither XDG_STATE_HOME nor HOME is set",
              "set HOME");
}

Recovery recover(const gpu::Nvml& nvml, const gpu::Inventory& inventory, const std::string& folder,
                 std::string_view boot_id, bool set) {
  Recovery out;
  if (set) remove_unfinished(folder);
  auto found = find_journals(folder);
  if (!found) {
    out.said.push_back("power journals: " + found.error().what);
    return out;
  }
  for (const auto& bad : found->unusable)
    out.said.push_back(
        put_aside(bad.path, bad.why,
                  bad.in_use ? "a living process holds it" : "see corral power show for the limits",
                  set && !bad.in_use));
  for (const Journal& journal : found->left)
    out.said.push_back(recover_one(nvml, inventory, journal, boot_id, set));
  out.held = std::move(found->held);
  return out;
}

}  // namespace corral::power

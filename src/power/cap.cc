// SPDX-License-Identifier: Apache-2.0
#include "power/cap.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "host/boot.h"
#include "host/proc.h"

namespace corral::power {
namespace {

std::string name(const Card& card) { return fmt::format("GPU {}", card.index); }

// Undoes a change that may or may not have happened. The error: the card may not be as before.
Result<void> undo(const gpu::Nvml& nvml, const Change& change) {
  const auto now = nvml.power_limit_mw(change.card.device);
  if (!now)
    return fail(fmt::format("{}: whether its limit is {} again cannot be read: {}",
                            name(change.card), watts(change.before_mw), now.error().text()));
  if (*now == change.before_mw) return {};
  return set_limit(nvml, change.card, change.before_mw);
}

struct NotSet {
  Error error;
  std::vector<std::size_t> uncertain;  // changes that could not be undone
};

std::expected<void, NotSet> set_or_undo(const gpu::Nvml& nvml, const std::vector<Change>& changes) {
  for (std::size_t i = 0; i < changes.size(); ++i) {
    auto set = set_limit(nvml, changes[i].card, changes[i].set_mw);
    if (set) continue;
    NotSet out{set.error(), {}};
    for (std::size_t k = i + 1; k-- > 0;) {
      const auto undone = undo(nvml, changes[k]);
      if (undone) continue;
      out.uncertain.push_back(k);
      out.error.what += "; " + undone.error().what;
    }
    out.error.hint = out.uncertain.empty() ? "the limits are as they were"
                                           : "see corral power show, and set it by hand";
    return std::unexpected(std::move(out));
  }
  return {};
}

Result<std::vector<HeldCap>> write_all_journals(const std::vector<Change>& changes,
                                                const std::string& folder, const Holder& holder) {
  std::vector<HeldCap> out;
  for (const Change& change : changes) {
    auto journal = write_journal(folder, {.boot_id = holder.boot_id,
                                          .gpu = change.card.uuid,
                                          .before_mw = change.before_mw,
                                          .set_mw = change.set_mw,
                                          .pid = holder.pid,
                                          .start_ticks = holder.start_ticks});
    if (!journal) {
      for (const HeldCap& held : out) (void)remove_journal(held.journal);
      return std::unexpected(journal.error());
    }
    out.push_back({change, *std::move(journal)});
  }
  return out;
}

PutBack failed(const Card& card, const Journal& journal, const std::string& why) {
  return {PutBack::Outcome::failed,
          fmt::format("{}: the power limit could not be put back to {}: {}; {} stays, and the next "
                      "corral power tries again",
                      name(card), watts(journal.entry.before_mw), why, journal.path)};
}

}  // namespace

bool is_limit(unsigned milliwatts, unsigned wanted_mw) {
  constexpr std::int64_t kRoundingMw = 1000;
  return std::abs(std::int64_t{milliwatts} - std::int64_t{wanted_mw}) < kRoundingMw;
}

Result<void> set_limit(const gpu::Nvml& nvml, const Card& card, unsigned milliwatts) {
  const auto set = nvml.set_power_limit(card.device, milliwatts);
  if (!set)
    return fail(
        fmt::format("{}: setting {}: {}", name(card), watts(milliwatts), set.error().text()));
  const auto now = nvml.power_limit_mw(card.device);
  if (!now)
    return fail(fmt::format("{}: {} was set and cannot be read again: {}", name(card),
                            watts(milliwatts), now.error().text()));
  if (!is_limit(*now, milliwatts))
    return fail(fmt::format("{}: the driver took {} and still says {}", name(card),
                            watts(milliwatts), watts(*now)));
  return {};
}

Result<void> set_all(const gpu::Nvml& nvml, const std::vector<Change>& changes) {
  const auto set = set_or_undo(nvml, changes);
  if (!set) return std::unexpected(set.error().error);
  return {};
}

Result<Holder> this_process() {
  CORRAL_TRY(const host::ProcessStat self, host::read_stat(host::Root(), ::getpid()));
  CORRAL_TRY(std::string boot_id, host::boot_id(host::Root()));
  return Holder{std::move(boot_id), self.pid, self.start_ticks};
}

Result<std::vector<HeldCap>> hold(const gpu::Nvml& nvml, const std::vector<Change>& changes,
                                  const std::string& folder, const Holder& holder) {
  CORRAL_TRY(auto held, write_all_journals(changes, folder, holder));
  const auto set = set_or_undo(nvml, changes);
  if (set) return held;
  Error error = set.error().error;
  for (std::size_t i = 0; i < held.size(); ++i)
    if (std::ranges::find(set.error().uncertain, i) == set.error().uncertain.end())
      (void)remove_journal(held[i].journal);
  if (!set.error().uncertain.empty())
    error.hint =
        fmt::format("its journal stays in {}, and the next corral power puts it back", folder);
  return std::unexpected(std::move(error));
}

PutBack put_back(const gpu::Nvml& nvml, const Card& card, const Journal& journal) {
  const JournalEntry& entry = journal.entry;
  const auto now = nvml.power_limit_mw(card.device);
  if (!now) return failed(card, journal, now.error().text());
  PutBack out;
  // A cap of less than a watt below is not what rounding made of the limit before.
  const bool ours = is_limit(*now, entry.set_mw) && *now != entry.before_mw;
  if (is_limit(*now, entry.before_mw) && !ours) {
    out = {PutBack::Outcome::as_before,
           fmt::format("{}: power limit {}, as before", name(card), watts(*now))};
  } else if (!ours) {
    out = {PutBack::Outcome::changed,
           fmt::format("{}: somebody changed the power limit to {} meanwhile (it was {}, we set "
                       "{}): left as it is",
                       name(card), watts(*now), watts(entry.before_mw), watts(entry.set_mw))};
  } else if (const auto set = set_limit(nvml, card, entry.before_mw); !set) {
    return failed(card, journal, set.error().what);
  } else {
    out = {PutBack::Outcome::restored,
           fmt::format("{}: power limit {} put back", name(card), watts(entry.before_mw))};
  }
  if (const auto removed = remove_journal(journal); !removed)
    out.text += "; " + removed.error().what;
  return out;
}

}  // namespace corral::power

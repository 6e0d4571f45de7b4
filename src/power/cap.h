// SPDX-License-Identifier: Apache-2.0
// Setting power limits, all or none, and putting them back. The only caller of NVML's setter.
//
// After each set the limit is read again: what the driver answers and what holds are two things. A
// driver may round to what the card's regulator takes, so that less than 1 W off is still what was
// asked for.
#pragma once

#include <expected>
#include <string>
#include <vector>

#include "base/error.h"
#include "gpu/nvml.h"
#include "power/journal.h"
#include "power/limits.h"

namespace corral::power {

// Whether `milliwatts` is what a set of `wanted_mw` leaves.
bool is_limit(unsigned milliwatts, unsigned wanted_mw);

// Sets one limit and makes sure that it holds.
Result<void> set_limit(const gpu::Nvml& nvml, const Card& card, unsigned milliwatts);

// Sets all of them; where one fails the others are put back. For a cap that stays.
Result<void> set_all(const gpu::Nvml& nvml, const std::vector<Change>& changes);

struct HeldCap {
  Change change;
  Journal journal;
};

// Who holds a cap, for its journals.
struct Holder {
  std::string boot_id;
  pid_t pid = 0;
  std::uint64_t start_ticks = 0;
};

// This process. The error is of /proc.
Result<Holder> this_process();

// Writes every journal, then sets every limit. Where anything fails, what was set is put back and
// the journals are removed, but those of cards of which that is not certain.
Result<std::vector<HeldCap>> hold(const gpu::Nvml& nvml, const std::vector<Change>& changes,
                                  const std::string& folder, const Holder& holder);

// What became of one limit that was to be put back.
struct PutBack {
  enum class Outcome {
    restored,
    as_before,  // it was at the limit before already: nothing to do
    changed,    // somebody set another limit meanwhile, which is left alone
    failed      // the journal stays for the next start
  };
  Outcome outcome = Outcome::failed;
  std::string text;  // "GPU 1: power limit 700 W put back"
};

// Puts one limit back and removes its journal.
PutBack put_back(const gpu::Nvml& nvml, const Card& card, const Journal& journal);

}  // namespace corral::power

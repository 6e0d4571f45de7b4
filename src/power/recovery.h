// SPDX-License-Identifier: Apache-2.0
// At every start: limits that a killed holder left behind are put back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gpu/device.h"
#include "gpu/machine.h"
#include "gpu/nvml.h"
#include "power/journal.h"

namespace corral::power {

// /run/corral as root, where a restart of the host empties it with the limits; the state folder of
// anybody else; inside the folder of a simulated machine, whose limits they are.
// `state_home` and `home` are $XDG_STATE_HOME and $HOME, null where unset.
Result<std::string> journal_folder(const gpu::Machine& machine, uid_t uid, const char* state_home,
                                   const char* home);

struct Recovery {
  std::vector<std::string> said;   // one line for each thing that was found and done
  std::vector<JournalEntry> held;  // caps that living processes hold
};

// `set` false: says what would be done, and does nothing. A journal that cannot be read, is from
// another boot, or asks for a limit outside of the card's range is set aside and named, never
// obeyed.
Recovery recover(const gpu::Nvml& nvml, const gpu::Inventory& inventory, const std::string& folder,
                 std::string_view boot_id, bool set);

}  // namespace corral::power

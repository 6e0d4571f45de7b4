// SPDX-License-Identifier: Apache-2.0
// Folders that only this user can write to, for what is believed when it is read again: in a shared
// /tmp or /run somebody may have made them first.
#pragma once

#include <string>

#include "base/error.h"

namespace corral {

// The error says what it is, whose, and with which mode. A link is no folder.
Result<void> check_private_folder(const std::string& path);

// Makes it unless it is there, with this mode whatever the umask says, and checks it. The folder
// above must be there.
Result<void> make_private_folder(const std::string& path, unsigned mode = 0700);

}  // namespace corral

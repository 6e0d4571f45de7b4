// SPDX-License-Identifier: Apache-2.0
// Which start of the kernel this is: what is left on a disk may be of an earlier one.
#pragma once

#include <string>

#include "base/error.h"
#include "host/root.h"

namespace corral::host {

// /proc/sys/kernel/random/boot_id (random(4)): a UUID in text.
Result<std::string> boot_id(const Root& root);

}  // namespace corral::host

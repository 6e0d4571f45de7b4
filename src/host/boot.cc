// SPDX-License-Identifier: Apache-2.0
#include "host/boot.h"

#include "base/file.h"
#include "base/text.h"

namespace corral::host {

Result<std::string> boot_id(const Root& root) {
  CORRAL_TRY(const std::string text, read_file(root.path("/proc/sys/kernel/random/boot_id")));
  return std::string(trim(text));
}

}  // namespace corral::host

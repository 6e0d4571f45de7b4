// SPDX-License-Identifier: Apache-2.0
#include "base/fd.h"

#include <unistd.h>

namespace corral {

void Fd::close() {
  // Linux releases the descriptor even when close() reports EINTR: never retry.
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

}  // namespace corral

// SPDX-License-Identifier: Apache-2.0
// What `corral run --mps` asks an MPS server for, and what the clients of one have asked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "isolate/plan.h"

namespace corral::mps {

// Of each process, as the driver counts it: a job of four processes may have four times as much.
struct Share {
  double percent = 100;  // of the GPU's multiprocessors, above 0 and at most 100
  std::optional<std::uint64_t>
      memory_bytes;  // device memory; nullopt: what the caller's variable says

  bool operator==(const Share&) const = default;
};

// "30%", "30", "30%,8G". The error is a usage error.
Result<Share> parse_share(std::string_view text);

// "30 % of the multiprocessors and 8192 MiB".
std::string share_text(const Share& share);

// The variables that make a process a client of the server behind `pipe_folder`, with that share.
// CUDA_MPS_PINNED_DEVICE_MEM_LIMIT takes the device's number in the server, which is 0 where a
// server has one device.
std::vector<isolate::Setting> client_settings(const Share& share, const std::string& pipe_folder,
                                              const std::string& log_folder);

// The variables of a client, nullopt where it has them not or they cannot be read as the driver
// reads them.
std::optional<double> percent_of(const std::optional<std::string>& variable);
// The limit of device 0 in "0=8G,1=512M".
std::optional<std::uint64_t> memory_limit_of(const std::optional<std::string>& variable);

}  // namespace corral::mps

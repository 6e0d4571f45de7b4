// SPDX-License-Identifier: Apache-2.0
// The clients of an MPS server and what each may take, by its own variables: limits are per process
// and nobody adds them up but this.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "host/root.h"
#include "mps/control.h"

namespace corral::mps {

struct Client {
  pid_t pid = 0;
  pid_t server = 0;
  std::string command;                        // empty: not readable
  bool limits_known = false;                  // false: its environment is another user's
  std::optional<double> percent;              // nullopt: no limit, or not known
  std::optional<std::uint64_t> memory_bytes;  // likewise
};

std::vector<Client> clients_of(const host::Root& root, const Serving& serving);

// What clients may take together. One without a limit may take all of the GPU.
struct Sum {
  unsigned clients = 0;
  unsigned unlimited = 0;  // of multiprocessors
  unsigned memory_unlimited = 0;
  unsigned unknown = 0;
  double percent = 0;  // of those that have a limit
  std::uint64_t memory_bytes = 0;

  bool operator==(const Sum&) const = default;
};
Sum sum_of(const std::vector<Client>& clients);

// "60 %, 16384 MiB"; says so where it is not the sum of all: some have no limit, or none that can
// be read.
std::string sum_text(const Sum& sum);

// Sentences on what is more than there is; none where all fits. `card_bytes` nullopt: not known.
// Percentages that exceed 100 are not refused by anybody: the clients then get in each other's way.
std::vector<std::string> overcommitment(const Sum& sum, std::optional<std::uint64_t> card_bytes);

}  // namespace corral::mps

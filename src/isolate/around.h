// SPDX-License-Identifier: Apache-2.0
// What the container or batch system around us gave, and whether anything keeps us to it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gpu/device.h"
#include "host/surroundings.h"

namespace corral::isolate {

struct Around {
  host::Surrounding place{};
  std::string given_by{};                 // "SLURM_JOB_GPUS=2,3"; empty: it names none
  std::optional<unsigned> given_count{};  // GPUs that it names; nullopt: that does not tell
  // Indices in the inventory of those that are certain: named by UUID. The numbers of a scheduler
  // are positions in its own configuration and prove nothing.
  std::optional<std::vector<unsigned>> given{};
  std::vector<unsigned> openable{};  // of the inventory
  // Whether nothing but what was given can be opened; nullopt: not known.
  std::optional<bool> held{};
  std::string text{};  // one line for people
};

// Pure. One entry for each surrounding, in the same order. Opens nothing: whether a node can be
// opened is in the inventory.
std::vector<Around> judge_surroundings(const std::vector<host::Surrounding>& surroundings,
                                       const host::Variables& variables,
                                       const gpu::Inventory& inventory);

// GPUs that a batch system's numbers mean if they count device nodes, as they mostly do: N of
// /dev/nvidiaN. nullopt: they are no numbers, or there is no such node.
std::optional<std::vector<unsigned>> given_by_minor(const Around& around,
                                                    const gpu::Inventory& inventory);

}  // namespace corral::isolate

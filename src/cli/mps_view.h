// SPDX-License-Identifier: Apache-2.0
// What `corral mps status` shows: every daemon that can be found, its clients, and their sums.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gpu/device.h"
#include "gpu/machine.h"
#include "gpu/selector.h"
#include "mps/clients.h"
#include "mps/control.h"
#include "mps/daemon.h"

namespace corral::cli {

// What a daemon said when it was asked.
struct MpsAnswer {
  std::optional<mps::Serving> serving;  // nullopt: it was not asked, or did not answer
  std::string why_not;
  std::vector<mps::Client> clients;
};

struct MpsOfGpu {
  const gpu::Gpu* gpu = nullptr;
  std::optional<mps::Daemon> daemon;          // nullopt: Corral started none
  std::string trouble;                        // why that cannot be told
  std::optional<std::uint64_t> memory_bytes;  // of the GPU, where clients make it worth asking
  MpsAnswer answer;
};

struct ForeignMps {
  mps::SeenDaemon daemon;
  MpsAnswer answer;
};

struct MpsView {
  bool simulated = false;
  std::vector<MpsOfGpu> gpus;
  std::vector<ForeignMps> others;
};

// `program`: the control program, or why there is none.
MpsView look_at_mps(const gpu::OpenedMachine& machine, const gpu::Selection& selection,
                    const std::vector<std::string>& bases, const Result<std::string>& program);

std::string mps_text(const MpsView& view);
nlohmann::json mps_json(const MpsView& view);

}  // namespace corral::cli

// SPDX-License-Identifier: Apache-2.0
// Speaks to an MPS daemon through NVIDIA's own program, nvidia-cuda-mps-control, in the dialect of
// the daemon.
//
// Legacy ("v2", the default everywhere): a command a line on its standard input, pids a line as the
// answer, exit status 0 whatever happened. v3 (NVIDIA, "MPS v3 Interface"): `module verb` as
// arguments, tables as CSV. The program follows the running daemon, whichever it was started as.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace corral::mps {

constexpr std::string_view kControlProgram = "nvidia-cuda-mps-control";

enum class Dialect { legacy, v3 };
std::string_view dialect_name(Dialect dialect);

struct Server {
  pid_t pid = 0;
  std::string name;    // v3 only
  std::string status;  // v3 only: "Ready"
  std::vector<pid_t> clients;

  bool operator==(const Server&) const = default;
};

struct Serving {
  Dialect dialect = Dialect::legacy;
  std::vector<Server> servers;  // none before the first client
};

// Its path by PATH. The error says where it comes from.
Result<std::string> find_control_program();

// What the daemon behind `pipe_folder` serves. The error says that none answers: nobody listens, it
// is another user's, or it took longer than `patience`.
Result<Serving> ask_what_it_serves(const std::string& program, const std::string& pipe_folder,
                                   std::chrono::milliseconds patience);

// Ends clients of a server, one command each; what the daemon says to it is not told.
Result<void> terminate_clients(const std::string& program, const std::string& pipe_folder,
                               const Serving& serving, std::chrono::milliseconds patience);

// Tells the daemon to end. It may live on for a moment.
Result<void> quit(const std::string& program, const std::string& pipe_folder, Dialect dialect,
                  std::chrono::milliseconds patience);

// Pure: the answers. An error is a text that is no such answer.
Result<std::vector<pid_t>> parse_pids(std::string_view answer);
Result<std::vector<Server>> parse_v3_servers(std::string_view csv);  // with its head line
Result<std::vector<pid_t>> parse_v3_clients(std::string_view csv);   // without

}  // namespace corral::mps

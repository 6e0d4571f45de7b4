// SPDX-License-Identifier: Apache-2.0
#include "mps/clients.h"

#include <fmt/format.h>

#include "host/proc.h"
#include "mps/share.h"

namespace corral::mps {
namespace {

// Sums of decimals: 3 × 33.3 + 0.1 is not more than 100.
constexpr double kRounding = 1e-6;

Client describe(const host::Root& root, pid_t pid, pid_t server) {
  Client client{.pid = pid,
                .server = server,
                .command = host::describe_process(root, pid).value_or(""),
                .limits_known = false,
                .percent = {},
                .memory_bytes = {}};
  const auto percent = host::environment_variable(root, pid, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
  const auto memory = host::environment_variable(root, pid, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
  if (!percent || !memory) return client;
  client.percent = percent_of(*percent);
  client.memory_bytes = memory_limit_of(*memory);
  // A limit in a form that is not read here, by UUID for one, is not no limit.
  client.limits_known = client.memory_bytes || memory->value_or("").empty();
  return client;
}

}  // namespace

std::vector<Client> clients_of(const host::Root& root, const Serving& serving) {
  std::vector<Client> clients;
  for (const Server& server : serving.servers)
    for (const pid_t pid : server.clients) clients.push_back(describe(root, pid, server.pid));
  return clients;
}

Sum sum_of(const std::vector<Client>& clients) {
  Sum sum;
  for (const Client& client : clients) {
    ++sum.clients;
    if (!client.limits_known) {
      ++sum.unknown;
      continue;
    }
    if (!client.percent) ++sum.unlimited;
    if (!client.memory_bytes) ++sum.memory_unlimited;
    sum.percent += client.percent.value_or(0);
    sum.memory_bytes += client.memory_bytes.value_or(0);
  }
  return sum;
}

std::string sum_text(const Sum& sum) {
  std::string text = fmt::format("{:.6g} %", sum.percent);
  if (sum.memory_bytes > 0) text += fmt::format(", {} MiB", sum.memory_bytes >> 20);
  const bool all = sum.unlimited == 0 && sum.unknown == 0 &&
                   (sum.memory_bytes == 0 || sum.memory_unlimited == 0);
  return all ? text : text + ", of the limits that are there and can be read";
}

std::vector<std::string> overcommitment(const Sum& sum, std::optional<std::uint64_t> card_bytes) {
  std::vector<std::string> said;
  if (sum.percent > 100 + kRounding)
    said.push_back(fmt::format(
        "the clients may take {:.6g} % of the multiprocessors together: they get in each other's "
        "way",
        sum.percent));
  else if (sum.unlimited > 0 && sum.clients > 1)
    said.push_back(fmt::format("{} of {} clients {} no limit of multiprocessors", sum.unlimited,
                               sum.clients, sum.unlimited == 1 ? "has" : "have"));
  if (card_bytes && sum.memory_bytes > *card_bytes)
    said.push_back(fmt::format(
        "the clients may take {} MiB together, and the GPU has {} MiB: the last one to ask gets "
        "none",
        sum.memory_bytes >> 20, *card_bytes >> 20));
  return said;
}

}  // namespace corral::mps

// SPDX-License-Identifier: Apache-2.0
#include "isolate/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "host/number_list.h"
#include "isolate/plan.h"

namespace corral::isolate {
namespace {

constexpr std::uint64_t kMostPids = 4194304;  // PID_MAX_LIMIT of 64-bit kernels, proc(5)
constexpr std::size_t kMostDecimals = 6;
constexpr const char* kSizeExample = "write it as 512M, 1.5G or a number of bytes";

using Numbers = std::vector<unsigned>;

Numbers both(const Numbers& a, const Numbers& b) {
  Numbers out;
  std::ranges::set_intersection(a, b, std::back_inserter(out));
  return out;
}

Numbers only_first(const Numbers& a, const Numbers& b) {
  Numbers out;
  std::ranges::set_difference(a, b, std::back_inserter(out));
  return out;
}

// The number of bits that a unit stands for: K 10, M 20, G 30, T 40, none 0.
std::optional<unsigned> unit_shift(std::string_view unit) {
  const std::string text = lower(unit);
  if (text.empty() || text == "b") return 0;
  unsigned shift = 0;
  for (const char letter : {'k', 'm', 'g', 't'}) {
    shift += 10;
    const std::string name(1, letter);
    if (text == name || text == name + "b" || text == name + "ib") return shift;
  }
  return std::nullopt;
}

std::unexpected<Error> wrong_size(std::string_view option, std::string_view text,
                                  const std::string& what) {
  return fail(std::string(option) + " \"" + printable(text) + "\": " + what, kSizeExample);
}

std::optional<std::uint64_t> shifted(std::uint64_t value, unsigned shift) {
  if (value > (std::uint64_t{std::numeric_limits<std::int64_t>::max()} >> shift))
    return std::nullopt;
  return value << shift;
}

const host::NumaNode* find_node(const LimitFacts& facts, unsigned number) {
  const auto found = std::ranges::find(facts.nodes, number, &host::NumaNode::number);
  return found == facts.nodes.end() ? nullptr : &*found;
}

std::string node_numbers(const LimitFacts& facts) {
  Numbers numbers;
  for (const host::NumaNode& node : facts.nodes) numbers.push_back(node.number);
  return host::number_list_text(numbers);
}

// The NUMA nodes near the given GPUs.
struct Near {
  Numbers nodes;
  std::string why;
};

Result<unsigned> node_of(const gpu::Gpu& gpu, const LimitFacts& facts, const std::string& option) {
  const std::string name = "GPU " + std::to_string(gpu.index);
  // Where there is one node, everything is on it, whether firmware says so or not.
  if (facts.nodes.size() == 1 && gpu.numa_node.value_or(-1) < 0) return facts.nodes.front().number;
  if (gpu.numa_node.value_or(-1) < 0)
    return fail(option + " auto: this machine does not say on which NUMA node " + name + " is",
                "give the list: nvidia-smi topo -m may know it");
  const auto number = static_cast<unsigned>(*gpu.numa_node);
  if (find_node(facts, number) == nullptr)
    return fail(fmt::format("{} auto: {} says that it is on NUMA node {}, but there are only {}",
                            option, name, number, node_numbers(facts)),
                "give the list");
  return number;
}

Result<Near> near_gpus(const Request& request, const LimitFacts& facts, const std::string& option) {
  if (!request.allowed.requested)
    return fail(option + " auto: near which GPU? No GPU was chosen", "add --gpus, or give a list");
  if (request.allowed.gpus.empty())
    return fail(option + " auto: the job is given no GPU to be near to", "give a list");
  if (facts.nodes.empty())
    return fail(option + " auto: this kernel tells no NUMA nodes (/sys/devices/system/node)",
                "give a list");
  Near near;
  Numbers gpus;
  for (const gpu::Gpu& gpu : request.inventory.gpus) {
    if (std::ranges::find(request.allowed.gpus, gpu.index) == request.allowed.gpus.end()) continue;
    CORRAL_TRY(const unsigned node, node_of(gpu, facts, option));
    near.nodes.push_back(node);
    gpus.push_back(gpu.index);
  }
  std::ranges::sort(near.nodes);
  const auto repeated = std::ranges::unique(near.nodes);
  near.nodes.erase(repeated.begin(), repeated.end());
  near.why = fmt::format("NUMA node {} of GPU {}", host::number_list_text(near.nodes),
                         host::number_list_text(gpus));
  return near;
}

// Of what is near, what we have; a note where that is less.
Result<Numbers> ours_of(const Numbers& wanted, const Numbers& ours, const std::string& option,
                        const std::string& why, std::vector<std::string>& notes) {
  Numbers have = both(wanted, ours);
  if (have.empty())
    return fail(fmt::format("{} auto: {} has {}, of which we have none: we are limited to {}",
                            option, why, wanted.empty() ? "none" : host::number_list_text(wanted),
                            host::number_list_text(ours)),
                "give a list, or start from a place that is not limited so");
  if (have.size() < wanted.size())
    notes.push_back(fmt::format("{} auto: of {} ({}) only {} are ours", option, why,
                                host::number_list_text(wanted), host::number_list_text(have)));
  return have;
}

Result<void> check_within(const Numbers& asked, const LimitFacts& facts, LimitKind kind) {
  const bool cpus = kind == LimitKind::cpus;
  const Numbers& ours = cpus ? facts.our_cpus : facts.our_mems;
  const Numbers outside = only_first(asked, ours);
  if (outside.empty()) return {};
  const std::string text = host::number_list_text(outside);
  if (!cpus) {
    for (const unsigned node : outside)
      if (find_node(facts, node) == nullptr)
        return fail(fmt::format("--mems: there is no NUMA node {}: this machine has {}", node,
                                node_numbers(facts)));
    return fail(fmt::format("--mems: node {} is not ours: we are limited to {}", text,
                            host::number_list_text(ours)));
  }
  if (const Numbers offline = only_first(outside, facts.online_cpus); !offline.empty())
    return fail(fmt::format("--cpus: CPU {} is not there or not online: online are {}",
                            host::number_list_text(offline),
                            host::number_list_text(facts.online_cpus)));
  return fail(
      fmt::format("--cpus: CPU {} is not ours: we are limited to {} (by the group we are "
                  "in, or by our affinity)",
                  text, host::number_list_text(ours)));
}

Result<void> choose_numbers(Limit& limit, const ListRequest& asked, const Request& request,
                            const LimitFacts& facts, std::vector<std::string>& notes) {
  const bool cpus = limit.kind == LimitKind::cpus;
  const std::string option = cpus ? "--cpus" : "--mems";
  if (!asked.automatic) {
    limit.numbers = asked.numbers;
    return check_within(asked.numbers, facts, limit.kind);
  }
  CORRAL_TRY(const Near near, near_gpus(request, facts, option));
  limit.why = near.why;
  Numbers wanted;
  for (const unsigned number : near.nodes) {
    const host::NumaNode* node = find_node(facts, number);
    if (cpus)
      std::ranges::copy(node->cpus, std::back_inserter(wanted));
    else if (node->has_memory)
      wanted.push_back(number);
  }
  std::ranges::sort(wanted);
  if (request.inventory.simulated) {
    // The machine of the GPUs is not the one that the job runs on.
    limit.numbers = wanted;
    limit.way = LimitWay::simulated;
    return {};
  }
  CORRAL_TRY(limit.numbers,
             ours_of(wanted, cpus ? facts.our_cpus : facts.our_mems, option, near.why, notes));
  return {};
}

const Controller& controller_of(const LimitFacts& facts, LimitKind kind) {
  if (kind == LimitKind::memory) return facts.memory;
  return kind == LimitKind::pids ? facts.pids : facts.cpuset;
}

std::string systemd_properties(const Limit& limit) {
  return limit.kind == LimitKind::memory
             ? fmt::format("-p MemoryMax={} -p MemorySwapMax=0", limit.amount)
             : fmt::format("-p TasksMax={}", limit.amount);
}

std::string_view controller_name(LimitKind kind) {
  const bool cpuset = kind == LimitKind::cpus || kind == LimitKind::mems;
  return cpuset ? "cpuset" : limit_name(kind);
}

// Nothing but a group holds them.
bool needs_group(const Limit& limit) {
  return limit.kind == LimitKind::memory || limit.kind == LimitKind::pids;
}

// A process is in one v2 group: the place that holds most of the limits, and all of those that
// nothing else can hold.
const V2Place* choose_place(const std::vector<Limit>& limits, const LimitFacts& facts) {
  const V2Place* best = nullptr;
  std::ptrdiff_t most = 0;
  for (const V2Place& place : facts.v2_places) {
    const auto left_to_v2 = [&](const Limit& limit) {
      return limit.way != LimitWay::simulated && controller_of(facts, limit.kind).version == 2;
    };
    const auto held = [&](const Limit& limit) {
      return left_to_v2(limit) && place.has(controller_name(limit.kind));
    };
    const bool all_needed = std::ranges::all_of(limits, [&](const Limit& limit) {
      return !needs_group(limit) || !left_to_v2(limit) || held(limit);
    });
    const auto count = std::ranges::count_if(limits, held);
    if (all_needed && count > most) {
      best = &place;
      most = count;
    }
  }
  return best;
}

constexpr const char* kPlannedScope = "a systemd scope of its own";

Result<void> choose_way(Limit& limit, const Request& request, const LimitFacts& facts,
                        const V2Place* place) {
  if (request.by_hand) {
    limit.way = LimitWay::by_hand;
    return {};
  }
  if (limit.way == LimitWay::simulated) return {};
  const Controller& controller = controller_of(facts, limit.kind);
  if (controller.version == 1 && controller.trouble.empty()) {
    limit.way = LimitWay::cgroup1;
    limit.parent = controller.folder;
    return {};
  }
  if (controller.version == 2 && place != nullptr && place->has(controller_name(limit.kind))) {
    limit.way = LimitWay::cgroup2;
    limit.parent = place->folder;
    if (place->step == FirstStep::scope) limit.scope = kPlannedScope;
    return {};
  }
  limit.way = LimitWay::task;
  if (!needs_group(limit)) return {};
  const std::string name(limit_name(limit.kind));
  return fail(
      fmt::format("--{} cannot be held here: {}", name,
                  controller.trouble.empty() ? "no group can have all that was asked for"
                                             : controller.trouble),
      fmt::format("run it as root, where systemd is: systemd-run --scope {} corral run …; or leave "
                  "--{} out (--print-commands shows what to type by hand)",
                  systemd_properties(limit), name));
}

std::string mib_text(std::uint64_t bytes) {
  if (bytes % (1U << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  return bytes % (1U << 10) == 0 ? fmt::format("{} KiB", bytes >> 10)
                                 : fmt::format("{} bytes", bytes);
}

}  // namespace

bool V2Place::has(std::string_view controller) const {
  return std::ranges::find(controllers, controller) != controllers.end();
}

Result<ListRequest> parse_list_limit(std::string_view option, std::string_view text) {
  if (text == "auto") return ListRequest{.automatic = true};
  const std::string name(option);
  if (trim(text).empty()) return fail(name + ": the list is empty", "write it as 0-3,8, or auto");
  auto numbers = host::parse_number_list(text);
  if (!numbers) return fail(name + " " + numbers.error().what, numbers.error().hint + ", or auto");
  return ListRequest{.numbers = *std::move(numbers)};
}

Result<std::uint64_t> parse_memory_limit(std::string_view text, std::string_view option) {
  const std::size_t unit = std::min(text.find_first_not_of("0123456789."), text.size());
  const auto shift = unit_shift(text.substr(unit));
  const std::string_view number = text.substr(0, unit);
  if (text.starts_with('-')) return wrong_size(option, text, "a limit cannot be negative");
  if (!shift)
    return wrong_size(option, text,
                      "\"" + printable(text.substr(unit)) + "\" is not a unit of memory");
  const auto dot = number.find('.');
  const auto whole = parse_number<std::uint64_t>(number.substr(0, dot));
  if (!whole) {
    const bool digits = number.find_first_not_of("0123456789") == number.npos && !number.empty();
    return wrong_size(option, text, digits ? "too large" : "not a number");
  }
  auto bytes = shifted(*whole, *shift);
  if (!bytes) return wrong_size(option, text, "too large");
  if (dot != number.npos) {
    const std::string_view decimals = number.substr(dot + 1);
    const auto fraction = parse_number<std::uint64_t>(decimals);
    if (!fraction || decimals.size() > kMostDecimals || *shift == 0)
      return wrong_size(option, text, "not a number with up to 6 decimals and a unit");
    std::uint64_t divisor = 1;
    for (std::size_t i = 0; i < decimals.size(); ++i) divisor *= 10;
    // At most 10^6 · 2^40: it fits.
    *bytes += (*fraction << *shift) / divisor;
  }
  if (*bytes < kLeastMemoryBytes)
    return wrong_size(option, text,
                      fmt::format("{} bytes is less than a program needs to start ({} MiB)", *bytes,
                                  kLeastMemoryBytes >> 20));
  return *bytes;
}

Result<std::uint64_t> parse_pids_limit(std::string_view text) {
  const auto number = parse_number<std::uint64_t>(text);
  if (number && *number >= 1 && *number <= kMostPids) return *number;
  return fail("--pids \"" + printable(text) +
                  "\": expected the most processes and threads that the "
                  "job may have, 1 to " +
                  std::to_string(kMostPids),
              "for example --pids 4096");
}

Result<PlannedLimits> plan_limits(const Request& request, const LimitFacts& facts) {
  PlannedLimits out;
  const LimitsRequest& asked = request.limits;
  if (asked.cpus) {
    Limit limit{.kind = LimitKind::cpus};
    CORRAL_CHECK(choose_numbers(limit, *asked.cpus, request, facts, out.notes));
    out.limits.push_back(std::move(limit));
  }
  if (asked.mems) {
    Limit limit{.kind = LimitKind::mems};
    CORRAL_CHECK(choose_numbers(limit, *asked.mems, request, facts, out.notes));
    out.limits.push_back(std::move(limit));
  }
  if (asked.memory_bytes)
    out.limits.push_back({.kind = LimitKind::memory, .amount = *asked.memory_bytes});
  if (asked.pids) out.limits.push_back({.kind = LimitKind::pids, .amount = *asked.pids});
  const V2Place* place = request.by_hand ? nullptr : choose_place(out.limits, facts);
  for (Limit& limit : out.limits) CORRAL_CHECK(choose_way(limit, request, facts, place));
  if (place != nullptr) {
    out.v2_place = *place;
    out.manager = facts.manager;
    if (!place->note.empty()) out.notes.push_back(place->note);
  }
  if (asked.memory_bytes && facts.memory_total_bytes &&
      *asked.memory_bytes > *facts.memory_total_bytes)
    out.notes.push_back(
        fmt::format("--memory: this machine has only {}", mib_text(*facts.memory_total_bytes)));
  return out;
}

std::string_view limit_name(LimitKind kind) {
  switch (kind) {
    case LimitKind::cpus:
      return "cpus";
    case LimitKind::mems:
      return "mems";
    case LimitKind::memory:
      return "memory";
    case LimitKind::pids:
      return "pids";
  }
  return {};
}

std::string limit_value(const Limit& limit) {
  switch (limit.kind) {
    case LimitKind::cpus:
      return "CPUs " + host::number_list_text(limit.numbers);
    case LimitKind::mems:
      return "memory of node " + host::number_list_text(limit.numbers);
    case LimitKind::memory:
      return "memory " + mib_text(limit.amount);
    case LimitKind::pids:
      return fmt::format("at most {} processes and threads", limit.amount);
  }
  return {};
}

std::string limit_holder(const Limit& limit) {
  const std::string controller(controller_name(limit.kind));
  switch (limit.way) {
    case LimitWay::cgroup2:
      return "cgroup v2 " + controller + (limit.scope.empty() ? "" : " in " + limit.scope);
    case LimitWay::cgroup1:
      return "cgroup v1 " + controller;
    case LimitWay::task:
      return limit.kind == LimitKind::cpus ? "affinity" : "memory policy";
    case LimitWay::simulated:
    case LimitWay::by_hand:
      return "nothing";
  }
  return {};
}

std::string limit_text(const Limit& limit) {
  std::string text = limit_value(limit);
  if (!limit.why.empty()) text += " (" + limit.why + ")";
  switch (limit.way) {
    case LimitWay::simulated:
      return text + ": not set, they are the simulated machine's";
    case LimitWay::by_hand:
      return text;
    case LimitWay::task:
      return text + " by " + limit_holder(limit) + ": the job can change it";
    case LimitWay::cgroup1:
    case LimitWay::cgroup2:
      return text + " by " + limit_holder(limit) +
             (limit.job_can_leave ? ", which a job with our rights could leave" : "");
  }
  return text;
}

nlohmann::json limits_json(const std::vector<Limit>& limits) {
  nlohmann::json out = nlohmann::json::object();
  for (const Limit& limit : limits) {
    const bool unset = limit.way == LimitWay::simulated || limit.way == LimitWay::by_hand;
    nlohmann::json entry = {
        {"why", limit.why.empty() ? nlohmann::json() : nlohmann::json(limit.why)},
        {"held_by", unset ? nlohmann::json() : nlohmann::json(limit_holder(limit))},
        {"job_can_change", unset || limit.job_can_leave}};
    if (limit.kind == LimitKind::memory)
      entry["bytes"] = limit.amount;
    else if (limit.kind == LimitKind::pids)
      entry["count"] = limit.amount;
    else
      entry["list"] = host::number_list_text(limit.numbers);
    out[std::string(limit_name(limit.kind))] = std::move(entry);
  }
  return out;
}

}  // namespace corral::isolate

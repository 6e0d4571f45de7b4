// SPDX-License-Identifier: Apache-2.0
// Limits of a job beside its GPUs: CPUs, memory nodes, memory, processes. Plain data and pure
// planning; isolate/limit_facts reads the host, isolate/limit_groups puts them into effect.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "host/numa.h"
#include "host/root.h"
#include "isolate/systemd.h"

namespace corral::isolate {

// A list as the user gave it, or `auto`: what is near the job's GPUs.
struct ListRequest {
  bool automatic = false;
  std::vector<unsigned> numbers{};

  bool operator==(const ListRequest&) const = default;
};

struct LimitsRequest {
  std::optional<ListRequest> cpus{};
  std::optional<ListRequest> mems{};
  std::optional<std::uint64_t> memory_bytes{};
  std::optional<std::uint64_t> pids{};

  bool any() const { return cpus || mems || memory_bytes || pids; }
};

// The values of --cpus and --mems; the error names `option`.
Result<ListRequest> parse_list_limit(std::string_view option, std::string_view text);

// "512M", "1.5G", "1048576": bytes, or binary K, M, G, T, with or without "iB" or "B". Not less
// than kLeastMemoryBytes.
// `option` is the one whose value it is, for the error.
Result<std::uint64_t> parse_memory_limit(std::string_view text,
                                         std::string_view option = "--memory");

// Processes and threads: 1 to 4194304, the most that a kernel has.
Result<std::uint64_t> parse_pids_limit(std::string_view text);

// With less the kernel ends most programs before main().
constexpr std::uint64_t kLeastMemoryBytes = 4U << 20;

// One controller of the group that we are in.
struct Controller {
  int version = 0;      // 1 or 2; 0: mounted nowhere
  std::string folder;   // v1: of the group that we are in
  std::string trouble;  // why no group with it can be made there; empty: one can
};

// What must happen before a group with controllers can be made in a place on cgroup v2.
enum class FirstStep {
  none,    // the controllers are passed on already
  enable,  // the root group is made to pass them on
  settle,  // we go from the group into one below it, since one with processes passes nothing on
  scope,   // systemd's manager makes a scope for us; then as `settle`
};

// A place on cgroup v2 for the job's group.
struct V2Place {
  std::string folder{};  // empty for a scope: not there yet
  FirstStep step = FirstStep::none;
  std::vector<std::string> controllers{};  // that a group there can have
  std::string note{};  // a side effect worth a line in the verdict; may be empty

  bool has(std::string_view controller) const;
  bool operator==(const V2Place&) const = default;
};

struct LimitFacts {
  std::vector<unsigned> online_cpus{};
  std::vector<unsigned> our_cpus{};     // the affinity that we were started with
  std::vector<unsigned> our_mems{};     // the memory nodes that we may use
  std::vector<host::NumaNode> nodes{};  // of the machine that holds the GPUs
  std::optional<std::uint64_t> memory_total_bytes{};
  Controller cpuset{};
  Controller memory{};
  Controller pids{};
  std::vector<V2Place>
      v2_places{};    // in order of preference; for controllers that v1 does not have
  Manager manager{};  // for a place with FirstStep::scope
};

enum class LimitKind { cpus, mems, memory, pids };

// How a limit is held. task: affinity or memory policy, which the job may change. simulated: the
// CPUs are those of the simulated machine, so that nothing is done. by_hand: only printed.
enum class LimitWay { cgroup2, cgroup1, task, simulated, by_hand };

struct Limit {
  LimitKind kind = LimitKind::cpus;
  std::vector<unsigned> numbers{};  // CPUs or memory nodes
  std::uint64_t amount = 0;         // bytes, or processes
  std::string why{};                // "NUMA node 1 of GPU 4"; empty: the list was given
  LimitWay way = LimitWay::task;
  std::string parent{};       // cgroup: the folder in which the job's own group is made
  std::string scope{};        // of systemd, that the group is in; empty: none
  bool job_can_leave = true;  // the job has the rights to take it off

  bool operator==(const Limit&) const = default;
};

struct PlannedLimits {
  std::vector<Limit> limits{};
  std::optional<V2Place> v2_place{};  // of those that a v2 group holds
  Manager manager{};                  // to ask for a scope
  std::vector<std::string> notes{};
};

struct Request;
struct V2Places;

// Pure. An error means that a limit cannot be held here, or that it is outside what we have.
// `job_can_leave` is left for the caller, who knows the other layers.
Result<PlannedLimits> plan_limits(const Request& request, const LimitFacts& facts);

// Of the live host; the NUMA nodes of `hardware`. A controller that is missing is a fact.
Result<LimitFacts> read_limit_facts(const host::Root& hardware);

// With the files of `root`: the hierarchy of the controller, and what keeps a group from having it.
// For v2 by what find_v2_places found.
Controller read_controller(const host::Root& root, std::string_view name, const V2Places& places);

// "CPUs 0-15", "memory 512 MiB", "at most 100 processes".
std::string limit_value(const Limit& limit);
// "cgroup v1 cpuset", "affinity", "memory policy".
std::string limit_holder(const Limit& limit);
// "CPUs 0-15 (NUMA node 0 of GPU 1) by affinity: the job can change it"
std::string limit_text(const Limit& limit);
std::string_view limit_name(LimitKind kind);  // "cpus", "mems", "memory", "pids"

// {"cpus": {"list": "0-15", "why": …, "held_by": …, "job_can_change": …}, "memory": {"bytes": …}}
nlohmann::json limits_json(const std::vector<Limit>& limits);

}  // namespace corral::isolate

// SPDX-License-Identifier: Apache-2.0
// What will be done to confine a job: plain data and pure planning. Nothing here touches the host.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "gpu/device.h"
#include "gpu/selector.h"
#include "isolate/advice.h"
#include "isolate/around.h"
#include "isolate/facts.h"
#include "isolate/limits.h"

namespace corral::isolate {

enum class Method { automatic, cgroup, landlock, mount, env };

// The value of --enforce: "auto" or "env" alone, or some of "cgroup", "mount" and "landlock" with
// commas between them. The answer is in the order in which the child enters them; never empty.
Result<std::vector<Method>> parse_methods(std::string_view text);
std::string_view method_name(Method method);

// What the job is given: gpu::select's answer, or no answer at all when --gpus was not used.
struct Selection : gpu::Selection {
  bool requested = false;  // false: every GPU stays open
};

struct Request {
  std::vector<Method> methods = {Method::automatic};  // as parse_methods gives them
  bool tight = false;
  bool allow_unenforced = false;
  std::vector<std::string> refuse_paths;  // --refuse, absolute
  gpu::Inventory inventory;
  Selection allowed;
  std::vector<std::string> command;  // the job's argv: a docker client in it is named
  LimitsRequest limits;
  host::Root hardware;  // the machine of the inventory: its NUMA nodes are read there
  // Of an MPS daemon that is itself confined to the selection: no way out. Empty: there is none.
  std::string own_mps_pipe{};
  // Of the MPS daemon that the job is told to use, where nothing confines that one. Empty: none.
  std::string open_mps_pipe{};
  bool by_hand = false;  // the plan is only printed (--print-commands): nothing here must hold it

  bool asks_for(Method method) const;
};

// One kernel feature, in the order in which the child enters them.
enum class Layer { cgroup2, cgroup1, mount, landlock, landlock_scope, seccomp };

// "cgroup v2", "cgroup v1", "mount namespace", "Landlock", "Landlock scope", "seccomp filter".
std::string_view layer_name(Layer layer);

struct RefusedNode {
  Node node;
  std::string why;      // "GPU 0", "DRM node of GPU 0", "--refuse", "second mount of /dev/nvidia0"
  bool by_path = true;  // Landlock, where it is used, refuses this name

  bool operator==(const RefusedNode&) const = default;
};

struct AllowedNode {
  std::string path;
  std::string why;

  bool operator==(const AllowedNode&) const = default;
};

// One environment variable that the launcher sets.
struct Setting {
  std::string name;
  std::string value;

  bool operator==(const Setting&) const = default;
};

struct Plan {
  std::vector<Layer> layers{};    // empty: nothing is added
  std::string enforced = "none";  // design section 7; tight: "cgroup+landlock+seccomp"
  bool requested = false;         // a selection or a --refuse was given at all
  bool tight = false;
  bool as_root = false;
  bool no_new_privs = false;

  std::vector<RefusedNode> refused{};  // empty: nothing to refuse
  std::vector<AllowedNode> allowed{};
  std::vector<Setting> environment{};
  std::vector<Limit> limits{};                // beside the GPUs; held whatever `enforced` says
  std::vector<std::string> not_covered{};     // ways out that are open here, one sentence each
  std::vector<std::string> open_ways{};       // of those, who would work on any GPU for the job
  std::vector<std::string> general_limits{};  // ways out that any such promise leaves open
  std::vector<std::string> notes{};           // side effects and degradations worth a line
  std::vector<Around> around{};               // what we are in, and whether that holds
  std::vector<Advice> advice{};               // to be said before the job starts

  // For the layers that need them.
  bool user_namespaces = false;  // mounts are made in one, and locked by a second one
  std::string driver_params{};   // shown without ModifyDeviceFiles; empty: not there
  unsigned landlock_abi = 0;
  std::vector<std::string> read_only{};  // cgroup mounts that Landlock leaves readable only
  std::string cgroup2_parent{};          // folder in which the job's own group is made
  std::string cgroup1_parent{};
  std::optional<V2Place> v2_place{};  // of the limits; taken before a group is made
  Manager manager{};                  // of systemd, to ask for a scope
  bool filter_cgroup_exits = false;   // the filter also refuses clone3 and bpf

  bool has(Layer layer) const;
};

// Whether something keeps the job from opening that node: a cgroup layer by its number, a mount or
// Landlock by its name, or the confinement that is there already. Else it stays open, and
// `not_covered` or `enforced` says so.
bool is_held(const Plan& plan, const RefusedNode& node);

// The same of the node itself, whatever lies over its name: what mounts do does not count.
bool is_held_uncovered(const Plan& plan, const RefusedNode& node);

// The paths that a request wants refused, before aliases: nodes of GPUs outside the selection,
// their DRM nodes, capability nodes of MIG instances outside it, and --refuse. `why` says which.
struct Wanted {
  std::string path;
  std::string why;
  // Device number where the driver fixes it (195:N), for nodes that do not exist here.
  std::optional<Node> known;
};
std::vector<Wanted> wanted_refusals(const Request& request);

// Pure. An error means that what was asked for is not available here: the text says why and the
// hint what would work (exit code 125).
Result<Plan> make_plan(const Request& request, const Host& host);

// read_host_facts and make_plan.
Result<Plan> plan_for(const Request& request);

// For --dry-run.
std::string describe(const Plan& plan);
nlohmann::json to_json(const Plan& plan);

// "cgroup v2", "Landlock ABI 7", "seccomp filter": the layers in words for the report.
std::vector<std::string> layer_texts(const Plan& plan);

}  // namespace corral::isolate

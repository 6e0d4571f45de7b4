// SPDX-License-Identifier: Apache-2.0
#include "isolate/by_hand.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "host/number_list.h"
#include "isolate/cgroup1.h"

namespace corral::isolate {
namespace {

const Limit* find(const Plan& plan, LimitKind kind) {
  const auto found = std::ranges::find(plan.limits, kind, &Limit::kind);
  return found == plan.limits.end() ? nullptr : &*found;
}

std::string list_of(const Limit& limit) { return host::number_list_text(limit.numbers); }

std::string job_words(const Plan& plan, const std::vector<std::string>& command) {
  std::vector<std::string> words;
  if (!plan.environment.empty()) words.emplace_back("env");
  for (const Setting& setting : plan.environment)
    words.push_back(shell_quote(setting.name + "=" + setting.value));
  for (const std::string& word : command) words.push_back(shell_quote(word));
  return command.empty() ? "COMMAND" : printable(join(words, " "));
}

// "c 195:0 rwm" lines with the reason behind them.
std::vector<std::pair<std::string, std::string>> device_rules(const Plan& plan) {
  std::vector<std::pair<std::string, std::string>> rules;
  for (const RefusedNode& refused : plan.refused)
    if (std::string line = deny_line(refused.node); !line.empty())
      rules.emplace_back(std::move(line), printable(refused.node.path + ", " + refused.why));
  return rules;
}

// Enters the groups in a subshell: the shell itself stays where it is.
std::string start_and_remove(const std::vector<std::string>& groups, const std::string& job) {
  std::string text = "(";
  for (const std::string& group : groups)
    text += fmt::format(" echo $BASHPID > {}/cgroup.procs &&", group);
  text += fmt::format(" exec {} )\n", job);
  return text + fmt::format("rmdir {}\n", join(groups, " "));
}

std::string version1(const Plan& plan, const std::string& job) {
  std::string text = "# cgroup v1, in a root bash: a group in the hierarchy of each controller\n";
  std::vector<std::string> groups;
  const auto group = [&](const char* controller) {
    groups.push_back(fmt::format("/sys/fs/cgroup/{}/by-hand", controller));
    text += fmt::format("mkdir {}\n", groups.back());
    return groups.back();
  };
  if (const auto rules = device_rules(plan); !rules.empty()) {
    const std::string folder = group("devices");
    for (const auto& [line, why] : rules)
      text += fmt::format("echo '{}' > {}/devices.deny  # {}\n", line, folder, why);
  }
  const Limit* cpus = find(plan, LimitKind::cpus);
  const Limit* mems = find(plan, LimitKind::mems);
  if (cpus != nullptr || mems != nullptr) {
    const std::string folder = group("cpuset");
    const auto line = [&](const Limit* limit, const char* file) {
      text += limit != nullptr ? fmt::format("echo {} > {}/{}\n", list_of(*limit), folder, file)
                               : fmt::format("cat {}/../{} > {}/{}  # v1 wants both\n", folder,
                                             file, folder, file);
    };
    line(cpus, "cpuset.cpus");
    line(mems, "cpuset.mems");
  }
  if (const Limit* memory = find(plan, LimitKind::memory)) {
    const std::string folder = group("memory");
    text += fmt::format("echo {} > {}/memory.limit_in_bytes\n", memory->amount, folder);
    text += fmt::format(
        "echo {} > {}/memory.memsw.limit_in_bytes  # with swap, where the kernel counts it\n",
        memory->amount, folder);
  }
  if (const Limit* pids = find(plan, LimitKind::pids)) {
    const std::string folder = group("pids");
    text += fmt::format("echo {} > {}/pids.max\n", pids->amount, folder);
  }
  return groups.empty() ? text + job + "\n" : text + start_and_remove(groups, job);
}

std::string version2(const Plan& plan, const std::string& job) {
  const std::string folder = "/sys/fs/cgroup/by-hand";
  std::string text = "# cgroup v2, in a root bash: one group with all controllers\n";
  std::string controllers;
  std::string files;
  const auto add = [&](const char* controller, const std::string& value, const char* file) {
    if (controllers.find(controller) == controllers.npos)
      controllers += fmt::format("{}+{}", controllers.empty() ? "" : " ", controller);
    files += fmt::format("echo {} > {}/{}\n", value, folder, file);
  };
  if (const Limit* cpus = find(plan, LimitKind::cpus)) add("cpuset", list_of(*cpus), "cpuset.cpus");
  if (const Limit* mems = find(plan, LimitKind::mems)) add("cpuset", list_of(*mems), "cpuset.mems");
  if (const Limit* memory = find(plan, LimitKind::memory)) {
    add("memory", std::to_string(memory->amount), "memory.max");
    add("memory", "0", "memory.swap.max");
  }
  if (const Limit* pids = find(plan, LimitKind::pids))
    add("pids", std::to_string(pids->amount), "pids.max");
  if (!controllers.empty())
    text += fmt::format("echo '{}' > /sys/fs/cgroup/cgroup.subtree_control\n", controllers);
  text += fmt::format("mkdir {}\n{}", folder, files);
  if (const auto rules = device_rules(plan); !rules.empty()) {
    text +=
        "# v2 has no file for devices, it takes a BPF program (type cgroup/dev): one that returns "
        "0 "
        "for\n";
    for (const auto& [line, why] : rules) text += fmt::format("#   {}  # {}\n", line, why);
    text += fmt::format(
        "# and 1 for all else. With it in rules.o: bpftool prog load rules.o /sys/fs/bpf/by-hand\n"
        "#   bpftool cgroup attach {} cgroup_device pinned /sys/fs/bpf/by-hand multi\n",
        folder);
  }
  return text + start_and_remove({folder}, job);
}

// systemd can only allow: `closed` leaves /dev/null and its like, and the driver's shared nodes are
// needed beside those of the given GPUs.
std::string device_properties(const Plan& plan) {
  std::string text = " -p DevicePolicy=closed";
  std::vector<std::string> nodes = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
                                    "char-pts"};
  for (const AllowedNode& node : plan.allowed) nodes.push_back(node.path);
  for (const std::string& node : nodes)
    text += fmt::format(" \\\n  -p DeviceAllow={}", shell_quote(node + " rw"));
  return text;
}

std::string systemd(const Plan& plan, const std::string& job) {
  std::string text = "# systemd-run, as root: a scope that goes away with the job\n";
  std::string command = "systemd-run --scope";
  if (!device_rules(plan).empty()) {
    text +=
        "# systemd has no list of refused devices: this one allows a few, and refuses all others\n";
    command += device_properties(plan);
  }
  if (const Limit* cpus = find(plan, LimitKind::cpus))
    command += fmt::format(" \\\n  -p AllowedCPUs={}", list_of(*cpus));
  if (const Limit* mems = find(plan, LimitKind::mems))
    command += fmt::format(" \\\n  -p AllowedMemoryNodes={}", list_of(*mems));
  if (const Limit* memory = find(plan, LimitKind::memory))
    command += fmt::format(" \\\n  -p MemoryMax={} -p MemorySwapMax=0", memory->amount);
  if (const Limit* pids = find(plan, LimitKind::pids))
    command += fmt::format(" \\\n  -p TasksMax={}", pids->amount);
  return text + command + " \\\n  -- " + job + "\n";
}

}  // namespace

std::string commands_by_hand(const Plan& plan, const std::vector<std::string>& command) {
  const std::string job = job_words(plan, command);
  return version1(plan, job) + "\n" + version2(plan, job) + "\n" + systemd(plan, job);
}

}  // namespace corral::isolate

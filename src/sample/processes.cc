// SPDX-License-Identifier: Apache-2.0
// Joining NVML's process lists with /proc.
#include "sample/processes.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "host/proc.h"

namespace corral::sample {
namespace {

// The kernel's fixed inode of the first pid namespace (PROC_PID_INIT_INO).
constexpr std::string_view kOutermost = "pid:[4026531836]";

bool in_outermost_namespace(const host::Root& root) {
  char target[64];
  const ssize_t length = ::readlink(root.path("/proc/self/ns/pid").c_str(), target, sizeof target);
  return length > 0 && std::string_view(target, static_cast<std::size_t>(length)) == kOutermost;
}

}  // namespace

ProcessBook::ProcessBook(host::Root root, pid_t job_ancestor,
                         std::vector<host::ProcessStat> not_of_job, bool pids_are_ours)
    : root_(std::move(root)),
      job_ancestor_(job_ancestor),
      not_of_job_(std::move(not_of_job)),
      pids_are_ours_(pids_are_ours || in_outermost_namespace(root_)) {}

bool ProcessBook::believable() const {
  return pids_are_ours_ || (strangers_ == 0 && !entries_.empty());
}

bool ProcessBook::uses_driver(pid_t pid) const {
  const auto devices = host::open_devices(root_, pid);
  return devices && std::ranges::any_of(*devices, [](const host::OpenDevice& device) {
           return device.path.starts_with("/dev/nvidia");
         });
}

bool ProcessBook::descends_from_ancestor(pid_t pid) const {
  if (job_ancestor_ == 0) return false;
  // Parents are read at different moments: a limit, because they could form a ring.
  constexpr int kMaxDepth = 1024;
  for (int i = 0; i < kMaxDepth; ++i) {
    const auto stat = host::read_stat(root_, pid);
    if (!stat || stat->parent <= 0) return false;
    if (std::ranges::any_of(not_of_job_, [&](const host::ProcessStat& other) {
          return other.pid == stat->pid && other.start_ticks == stat->start_ticks;
        }))
      return false;
    if (stat->parent == job_ancestor_) return true;
    pid = stat->parent;
  }
  return false;
}

std::optional<ProcessBook::Entry> ProcessBook::find(pid_t pid) {
  const auto stat = host::read_stat(root_, pid);
  if (!stat) {
    ++strangers_;
    return std::nullopt;
  }
  const auto known = entries_.find(pid);
  if (known != entries_.end() && known->second.start_ticks == stat->start_ticks)
    return known->second;
  // A number of the host that one of our processes happens to have, too.
  if (!pids_are_ours_ && !uses_driver(pid)) {
    ++strangers_;
    return std::nullopt;
  }
  Entry entry;
  entry.start_ticks = stat->start_ticks;
  entry.command = host::describe_process(root_, pid).value_or("");
  entry.of_job = descends_from_ancestor(pid);
  return entries_.insert_or_assign(pid, std::move(entry)).first->second;
}

void GpuProcesses::add(const gpu::NvmlResult<std::vector<gpu::NvmlProcess>>& compute,
                       const gpu::NvmlResult<std::vector<gpu::NvmlProcess>>& graphics,
                       ProcessBook& book) {
  if (!compute) {
    failure_ = gpu::describe(compute.error().code);
    return;
  }
  listed_ = true;
  // A process that computes and draws is in both lists with the same memory; one that uses several
  // MIG instances is in one list several times.
  std::map<pid_t, std::optional<std::uint64_t>> now;
  for (const gpu::NvmlProcess& process : *compute) {
    auto& bytes = now[process.pid];
    if (process.memory_bytes) bytes = bytes.value_or(0) + *process.memory_bytes;
  }
  if (graphics)
    for (const gpu::NvmlProcess& process : *graphics)
      now.emplace(process.pid, process.memory_bytes);

  std::uint64_t job_bytes = 0;
  bool job_bytes_known = true;
  for (const auto& [pid, bytes] : now) {
    const auto entry = book.find(pid);
    if (!entry) continue;
    auto& process = processes_[{pid, entry->start_ticks}];
    process.pid = pid;
    process.command = entry->command;
    process.of_job = entry->of_job;
    if (bytes) process.memory_bytes = std::max(process.memory_bytes.value_or(0), *bytes);
    if (!entry->of_job) continue;
    job_bytes += bytes.value_or(0);
    job_bytes_known = job_bytes_known && bytes.has_value();
  }
  if (job_bytes_known) job_peak_bytes_ = std::max(job_peak_bytes_.value_or(0), job_bytes);
}

std::vector<snapshot::GpuProcess> GpuProcesses::processes() const {
  std::vector<snapshot::GpuProcess> out;
  for (const auto& [key, process] : processes_) out.push_back(process);
  return out;
}

std::optional<bool> GpuProcesses::known(const ProcessBook& book) const {
  if (!listed_ && failure_.empty()) return std::nullopt;
  return failure_.empty() && book.believable();
}

}  // namespace corral::sample

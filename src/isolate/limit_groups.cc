// SPDX-License-Identifier: Apache-2.0
#include "isolate/limit_groups.h"

#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <optional>

#include "base/file.h"
#include "base/text.h"
#include "host/number_list.h"

namespace corral::isolate {
namespace {

// The kernel's bit sets, large enough for any of its configurations: with a smaller one the calls
// fail.
constexpr std::size_t kBits = host::kHighestNumber + 1;
constexpr std::size_t kBitsOfWord = sizeof(unsigned long) * CHAR_BIT;
using BitSet = std::array<unsigned long, kBits / kBitsOfWord>;

BitSet bits_of(const std::vector<unsigned>& numbers) {
  BitSet bits{};
  for (const unsigned number : numbers) bits[number / kBitsOfWord] |= 1UL << number % kBitsOfWord;
  return bits;
}

std::vector<unsigned> numbers_of(const BitSet& bits) {
  std::vector<unsigned> numbers;
  for (unsigned number = 0; number < kBits; ++number)
    if ((bits[number / kBitsOfWord] >> number % kBitsOfWord & 1UL) != 0) numbers.push_back(number);
  return numbers;
}

Result<void> set_affinity(const std::vector<unsigned>& cpus) {
  const BitSet bits = bits_of(cpus);
  if (::syscall(SYS_sched_setaffinity, 0, sizeof bits, bits.data()) != 0)
    return fail_sys("sched_setaffinity to CPUs " + host::number_list_text(cpus), errno);
  return {};
}

Result<void> bind_memory(const std::vector<unsigned>& nodes) {
  const BitSet bits = bits_of(nodes);
  // One bit more than there are: the kernel does not look at the last.
  if (::syscall(SYS_set_mempolicy, MPOL_BIND, bits.data(), kBits) != 0)
    return fail_sys("set_mempolicy to node " + host::number_list_text(nodes), errno,
                    errno == ENOSYS || errno == EPERM
                        ? "a container's filter may refuse it: leave --mems out"
                        : "");
  return {};
}

// The nodes of our memory policy, or, `allowed`, those that the cpuset leaves.
Result<std::vector<unsigned>> memory_nodes(bool allowed) {
  BitSet bits{};
  int mode = MPOL_DEFAULT;
  const unsigned long flags = allowed ? MPOL_F_MEMS_ALLOWED : 0;
  if (::syscall(SYS_get_mempolicy, allowed ? nullptr : &mode, bits.data(), kBits, nullptr, flags) !=
      0)
    return fail_sys("get_mempolicy", errno);
  if (!allowed && mode != MPOL_BIND) return std::vector<unsigned>();
  return numbers_of(bits);
}

std::unexpected<Error> not_in_effect(const Limit& limit, const std::string& found) {
  return fail("self-test: " + limit_text(limit) + " must be in effect, but: " + found,
              "the limit does not hold here; nothing was started");
}

Result<void> test_numbers(const Limit& limit) {
  const bool cpus = limit.kind == LimitKind::cpus;
  CORRAL_TRY(const std::vector<unsigned> found,
             cpus ? affinity() : memory_nodes(limit.way != LimitWay::task));
  if (found == limit.numbers) return {};
  return not_in_effect(limit, "the kernel has " + (found.empty() ? std::string("no policy")
                                                                 : host::number_list_text(found)));
}

std::string amount_file(const Limit& limit) {
  if (limit.kind == LimitKind::pids) return "pids.max";
  return limit.way == LimitWay::cgroup2 ? "memory.max" : "memory.limit_in_bytes";
}

// The kernel counts memory in pages.
bool is_in_effect(const Limit& limit, std::string_view text) {
  const auto found = parse_number<std::uint64_t>(trim(text));
  if (!found) return false;
  if (limit.kind == LimitKind::pids) return *found == limit.amount;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return *found <= limit.amount && *found + page > limit.amount;
}

Result<void> test_amount(const Limit& limit, const std::string& group) {
  CORRAL_TRY(const std::string text, read_file(group + "/" + amount_file(limit)));
  if (is_in_effect(limit, text)) return {};
  return not_in_effect(limit, group + "/" + amount_file(limit) + " has " + printable(trim(text)));
}

bool is_cgroup(const Limit& limit) {
  return limit.way == LimitWay::cgroup1 || limit.way == LimitWay::cgroup2;
}

const CgroupFolder* group_of(const Limit& limit, const std::vector<const CgroupFolder*>& groups) {
  const auto found = std::ranges::find_if(groups, [&](const CgroupFolder* group) {
    return group->path().starts_with(limit.parent + "/");
  });
  return found == groups.end() ? nullptr : *found;
}

Result<void> test_limit(const Limit& limit, const std::vector<const CgroupFolder*>& groups) {
  if (limit.kind == LimitKind::cpus || limit.kind == LimitKind::mems) return test_numbers(limit);
  const CgroupFolder* group = group_of(limit, groups);
  if (group == nullptr || !group->holds_caller())
    return not_in_effect(limit, "the job is not in its group");
  return test_amount(limit, group->path());
}

// v1: a process can enter only when both are set, and each must lie within the group above.
Result<void> fill_cpuset(const std::string& group) {
  const std::string above = group.substr(0, group.rfind('/'));
  for (const char* file : {"/cpuset.cpus", "/cpuset.mems"}) {
    CORRAL_TRY(const std::string now, read_file(group + file));
    if (!trim(now).empty()) continue;
    CORRAL_TRY(const std::string theirs, read_file(above + file));
    CORRAL_CHECK(write_existing(group + file, trim(theirs)));
  }
  return {};
}

Result<void> write_memory(const std::string& group, const Limit& limit) {
  const std::string bytes = std::to_string(limit.amount);
  CORRAL_CHECK(write_existing(group + "/" + amount_file(limit), bytes));
  const bool v2 = limit.way == LimitWay::cgroup2;
  const std::string swap = group + (v2 ? "/memory.swap.max" : "/memory.memsw.limit_in_bytes");
  // A kernel without swap accounting has no such file.
  auto written = write_existing(swap, v2 ? "0" : bytes);
  if (!written && written.error().sys != ENOENT) return written;
  return {};
}

// "oom_kill 3" in memory.events or memory.oom_control; "max 2" in pids.events.
std::optional<std::uint64_t> counter(const std::string& file, std::string_view name) {
  const auto text = read_file(file);
  if (!text) return std::nullopt;
  for (const std::string_view line : split(*text, '\n')) {
    const auto space = line.find(' ');
    if (space != line.npos && line.substr(0, space) == name)
      return parse_number<std::uint64_t>(trim(line.substr(space)));
  }
  return std::nullopt;
}

}  // namespace

Result<std::vector<unsigned>> affinity() {
  BitSet bits{};
  if (::syscall(SYS_sched_getaffinity, 0, sizeof bits, bits.data()) < 0)
    return fail_sys("sched_getaffinity", errno);
  return numbers_of(bits);
}

Result<void> write_limit(const std::string& group, const Limit& limit) {
  const std::string list = host::number_list_text(limit.numbers);
  switch (limit.kind) {
    case LimitKind::cpus:
    case LimitKind::mems:
      if (limit.way == LimitWay::cgroup1) CORRAL_CHECK(fill_cpuset(group));
      return write_existing(
          group + (limit.kind == LimitKind::cpus ? "/cpuset.cpus" : "/cpuset.mems"), list);
    case LimitKind::memory:
      return write_memory(group, limit);
    case LimitKind::pids:
      return write_existing(group + "/pids.max", std::to_string(limit.amount));
  }
  return {};
}

Result<void> enter_limits(const std::vector<Limit>& limits,
                          const std::vector<const CgroupFolder*>& groups) {
  if (limits.empty()) {
    for (const CgroupFolder* group : groups) CORRAL_CHECK(group->join());
    return {};
  }
  CORRAL_TRY(std::vector<unsigned> cpus, affinity());
  for (const CgroupFolder* group : groups) CORRAL_CHECK(group->join());
  for (const Limit& limit : limits) {
    if (limit.kind == LimitKind::cpus && limit.way != LimitWay::simulated) cpus = limit.numbers;
    if (limit.kind == LimitKind::mems && limit.way == LimitWay::task)
      CORRAL_CHECK(bind_memory(limit.numbers));
  }
  CORRAL_TRY(const std::vector<unsigned> now, affinity());
  if (now != cpus) CORRAL_CHECK(set_affinity(cpus));
  for (const Limit& limit : limits)
    if (limit.way == LimitWay::task || is_cgroup(limit)) CORRAL_CHECK(test_limit(limit, groups));
  return {};
}

std::vector<std::string> limit_events(const std::string& group, const Limit& limit) {
  std::vector<std::string> events;
  if (limit.kind == LimitKind::memory) {
    const char* file = limit.way == LimitWay::cgroup2 ? "/memory.events" : "/memory.oom_control";
    if (const auto kills = counter(group + file, "oom_kill"); kills.value_or(0) > 0)
      events.push_back(
          fmt::format("the job reached its limit ({}): the kernel killed {} of its "
                      "processes",
                      limit_value(limit), *kills));
  }
  if (limit.kind == LimitKind::pids)
    if (const auto refused = counter(group + "/pids.events", "max"); refused.value_or(0) > 0)
      events.push_back(fmt::format("the job reached its limit ({}): {} more were refused to it",
                                   limit_value(limit), *refused));
  return events;
}

}  // namespace corral::isolate

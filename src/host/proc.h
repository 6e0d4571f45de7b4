// SPDX-License-Identifier: Apache-2.0
// Facts of processes from /proc. What cannot be read is an error, never an empty answer: a process
// that hides its maps is not one without the driver.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "host/root.h"

namespace corral::host {

// Of /proc/PID/stat, see proc(5).
struct ProcessStat {
  pid_t pid = 0;
  std::string comm;  // may hold blanks, parentheses and newlines
  char state = '?';  // 'R', 'S', 'D', 'Z' …
  pid_t parent = 0;
  // Clock ticks after boot. With the pid it names a process for good: pids are used again.
  std::uint64_t start_ticks = 0;

  bool operator==(const ProcessStat&) const = default;
};

// Of /proc/PID/status.
struct ProcessStatus {
  uid_t uid = 0;  // effective
  // The pid in each pid namespace, outermost first; one entry where there is no further namespace,
  // empty where the kernel is older than 4.1 and does not say.
  std::vector<pid_t> namespace_pids;

  bool operator==(const ProcessStatus&) const = default;
};

// An open descriptor of a device node.
struct OpenDevice {
  int fd = -1;
  std::string path;  // as the process sees it: "/dev/nvidia0"
  dev_t number = 0;  // major and minor, which a rename or a second node does not change
  bool block = false;

  bool operator==(const OpenDevice&) const = default;
};

Result<ProcessStat> parse_stat(std::string_view text);
Result<ProcessStatus> parse_status(std::string_view text);
// The files of a /proc/PID/maps text, each once, in order of first appearance; "(deleted)" is cut.
std::vector<std::string> parse_mapped_files(std::string_view maps);

Result<ProcessStat> read_stat(const Root& root, pid_t pid);
Result<ProcessStatus> read_status(const Root& root, pid_t pid);

// The arguments as the process holds them now; empty for kernel threads and zombies.
Result<std::vector<std::string>> read_arguments(const Root& root, pid_t pid);

// The command for people: quoted as a shell wants it, control characters made visible, at most
// `limit_bytes` long; "[comm]" for a process without arguments.
Result<std::string> describe_process(const Root& root, pid_t pid, std::size_t limit_bytes = 200);

// The files that the process has mapped. ESRCH also for one that is ending: its memory is gone
// before its /proc entry.
Result<std::vector<std::string>> mapped_files(const Root& root, pid_t pid);

// Of `files`, those whose name begins with `prefix`: "libcuda.so" finds
// "/usr/lib/libcuda.so.580.159".
std::vector<std::string> with_basename_prefix(const std::vector<std::string>& files,
                                              std::string_view prefix);

// Descriptors of character and block devices. On a captured host, where links lead nowhere, the
// error says so.
Result<std::vector<OpenDevice>> open_devices(const Root& root, pid_t pid);

// A variable of the environment the process was started with (later changes are not in /proc);
// nullopt: not set.
Result<std::optional<std::string>> environment_variable(const Root& root, pid_t pid,
                                                        std::string_view name);

// Every process, ascending.
Result<std::vector<pid_t>> list_pids(const Root& root);

// Of the processes now there: direct children, and children's children too. Ascending. Processes
// that end while they are looked at are left out, and those whose parent this process may not see
// (of other users, under hidepid=1). The kernel's own lists, read where it has them, may leave one
// out while a sibling of it ends: look again before saying that there is none.
Result<std::vector<pid_t>> children(const Root& root, pid_t pid);
Result<std::vector<pid_t>> descendants(const Root& root, pid_t pid);

}  // namespace corral::host

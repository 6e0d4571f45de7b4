// SPDX-License-Identifier: Apache-2.0
// Reads trace and counters files (docs/trace-format.md) of every version ever published.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "trace/wire.h"

namespace corral::trace {

struct PythonFrame {
  std::optional<std::uint32_t> line;
  std::string file;
  std::string function;
  bool operator==(const PythonFrame&) const = default;
};

struct NativeFrame {
  std::optional<std::uint32_t> module;  // key of ProcessTrace::modules; nullopt: in no file
  std::uint64_t offset = 0;             // from the load base; without a module the address itself
  bool operator==(const NativeFrame&) const = default;
};

// Innermost frame first.
struct Stack {
  std::vector<PythonFrame> python;
  std::uint64_t python_omitted = 0;  // frames of the middle that were not kept
  std::vector<NativeFrame> native;
  std::string python_source;  // "walker 3.12", or why there are no Python frames
  // The main thread's at that time, in the event of another thread.
  std::vector<PythonFrame> main_thread;
  std::uint64_t main_thread_omitted = 0;
  std::string main_thread_source;
};

struct Device {
  std::optional<int> ordinal;                        // CUDA's number in this process
  std::optional<std::array<std::uint8_t, 16>> uuid;  // of the GPU or of the MIG instance
  std::string pci;                                   // "0000:00:07.0"; empty: unknown
  // "2b68e1c4-…" without the "GPU-" or "MIG-" that the driver does not tell; empty: unknown.
  std::string uuid_text() const;
};

// What every event has.
struct Event {
  std::uint32_t tid = 0;
  std::int64_t monotonic_ns = 0;
  std::string function;
  std::string thread_name;
  // name → value; a name without a value was not set. Names that were not recorded are absent.
  std::map<std::string, std::optional<std::string>> variables;
  std::string cwd;  // working folder, where it is not ProcessTrace::cwd; else empty
  Stack stack;
  int result = 0;  // CUresult
};

struct ContextEvent : Event {
  bool ended = false;  // else made
  Device device;
  std::uint64_t context = 0;  // handle; 0: unknown
  bool primary = false;
  bool found = false;  // was active already: no hook saw it made
  bool green = false;
  bool view = false;    // another handle of a context that has its own event
  bool denied = false;  // refused by the shim; no context came of it
};

struct AllocationEvent : Event {
  Device device;
  std::uint64_t bytes = 0;
  bool first = false;  // on this device, of its kind
  bool large = false;
  bool shared = false;   // opened, not made: memory of another process or API
  bool managed = false;  // moves between host and devices
  bool graph = false;    // a graph's node: made when the graph is launched
};

// A number that no device has in that process.
struct NoSuchDeviceEvent : Event {
  int ordinal = 0;
};

// An allocation that was refused for want of memory, or the end of that.
struct ShortageEvent : Event {
  Device device;
  bool over = false;             // the same size succeeded next, by the same thread
  std::uint64_t bytes = 0;       // asked for
  std::uint64_t held_bytes = 0;  // by the process on the device when the first of `failures` failed
  std::uint64_t given_back_bytes = 0;  // of those, when it is over
  std::uint32_t failures = 0;          // one after the other
};

struct Module {
  std::string path;  // empty: the program itself
  std::uint64_t load_base = 0;
};

struct DeviceCounters {
  Device device;
  std::uint64_t bytes_now = 0;
  std::uint64_t bytes_peak = 0;
  std::uint64_t allocations = 0;
  std::uint64_t frees = 0;
  std::uint64_t untracked = 0;
  std::uint64_t shared = 0;          // times that memory of another process or API was opened
  std::uint64_t managed_now = 0;     // bytes, wherever they lie; not in bytes_now
  std::uint64_t graph_nodes = 0;     // allocation nodes added to graphs; not in bytes_now
  std::uint64_t out_of_memory = 0;   // allocations refused for want of memory
  std::uint64_t shortages_over = 0;  // of those, how often the same size succeeded next
};

struct Counters {
  std::uint32_t pid = 0;
  std::uint64_t start_time_ticks = 0;
  std::vector<DeviceCounters> devices;  // those in use
  std::array<std::uint64_t, wire::kLossReasons> lost_by_reason{};
  std::uint64_t unknown_device = 0;
  std::uint64_t foreign_frees = 0;
};

struct ProcessTrace {
  std::uint32_t version = 0;
  std::uint32_t pid = 0;  // in its own pid namespace
  std::uint32_t parent_pid = 0;
  std::optional<std::uint64_t> start_time_ticks;
  std::optional<std::uint64_t> pid_namespace;
  std::uint32_t ticks_per_second = 0;
  std::int64_t opened_monotonic_ns = 0;
  std::int64_t opened_realtime_ns = 0;
  std::string exe;
  std::vector<std::string> argv;
  bool argv_cut = false;
  std::string cwd;

  std::vector<Event> inits;
  std::vector<ContextEvent> contexts;  // makers and enders in the order of the file
  std::vector<AllocationEvent> allocations;
  std::vector<NoSuchDeviceEvent> no_such_devices;
  std::vector<ShortageEvent> shortages;
  std::map<std::uint32_t, Module> modules;
  std::array<std::uint64_t, wire::kLossReasons> lost_by_reason{};
  std::optional<std::int64_t> exit_monotonic_ns;
  std::optional<Counters> counters;

  bool cut = false;                   // the last record is not whole
  std::optional<Error> damage;        // why reading stopped before the end
  std::uint64_t unknown_records = 0;  // of kinds that this reader does not know
  std::uint64_t unknown_fields = 0;

  // By the trace or the counters file, whichever saw more.
  std::uint64_t records_lost() const;
};

// Errors: no trace file, a header that cannot be, a version newer than wire::kVersion. Damage
// behind the header is not an error: what came before it is kept and `damage` says where it is.
// `name` stands in the errors for the file.
Result<ProcessTrace> parse_trace(std::span<const char> bytes, const std::string& name);
Result<Counters> parse_counters(std::span<const char> bytes, const std::string& name);

// The trace with its counters file, when there is one beside it. Only regular files of at most
// 512 MiB (counters: 1 MiB) are opened, and no links followed: a job may have put anything there.
Result<ProcessTrace> read_trace(const std::string& path);

struct FolderTraces {
  std::vector<ProcessTrace> traces;  // by time of opening
  std::vector<Error> errors;         // of files that could not be read at all
};
// Every *.trace of the folder.
Result<FolderTraces> read_trace_folder(const std::string& folder);

}  // namespace corral::trace

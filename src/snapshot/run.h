// SPDX-License-Identifier: Apache-2.0
// Everything known of one run of a job: plain data that rules and reports read. Unknown is nullopt,
// never 0. Times are seconds since the job was started; `started_realtime_ns` places them on the
// wall clock.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpu/device.h"

namespace corral::snapshot {

struct PythonFrame {
  std::string file;
  std::optional<unsigned> line;
  std::string function;
  bool operator==(const PythonFrame&) const = default;
};

struct NativeFrame {
  std::string module;        // path of the mapped file; empty when the address is in none
  std::string function;      // symbol where known, else empty
  std::uint64_t offset = 0;  // from the module's load base
  bool operator==(const NativeFrame&) const = default;
};

// The stack of one event, innermost frame first.
struct Stack {
  std::vector<PythonFrame> python;
  std::uint64_t python_omitted = 0;  // frames between those that were not kept
  std::vector<NativeFrame> native;
  std::string
      python_source;  // how the Python frames were had: "walker 3.12", or why there are none
  // The main thread's Python frames at that time, read while it ran, for an event of another
  // thread. They did not make the call.
  std::vector<PythonFrame> main_thread;
  std::uint64_t main_thread_omitted = 0;
  std::string main_thread_source;  // like python_source; empty on the main thread itself
};

struct Context {
  std::optional<unsigned>
      gpu;  // index in the inventory; nullopt: a device that the inventory does not know
  std::string gpu_uuid;
  std::optional<int> ordinal;  // CUDA's number of the device in that process
  pid_t pid = 0;
  std::string process;  // command line for people
  std::string thread;   // thread name
  pid_t tid = 0;        // 0: unknown
  std::optional<int> rank;
  double time_s = 0;
  std::optional<double> ended_s;
  std::string call;  // "cuDevicePrimaryCtxRetain"
  // It was there already when first seen: the call and time are those of finding it. Where the
  // driver had to be asked (cuDevicePrimaryCtxGetState) the stack would be a bystander's: it is
  // empty.
  bool found = false;
  bool denied = false;  // refused by the shim (`trace --deny`): no context came of the call
  // CUDA_VISIBLE_DEVICES when the context was made is not what it was at cuInit.
  bool visible_devices_changed = false;
  std::optional<std::string> visible_devices;  // its value then; nullopt: not set
  // Of all variables of Init, those whose value then was not the one at cuInit; nullopt: removed.
  std::map<std::string, std::optional<std::string>> changed_variables;
  std::string cwd;  // working folder then
  bool stray = false;
  std::string finding;  // id of the finding that explains it; empty when none does
  Stack stack;
  std::optional<PythonFrame> culprit;
};

// One cuInit: what was known when the driver read its variables.
struct Init {
  pid_t pid = 0;
  pid_t parent_pid = 0;  // 0: unknown, or outside of the process's pid namespace
  std::string process;
  double time_s = 0;
  int result = 0;                              // CUresult
  std::optional<double> exited_s{};            // nullopt: not known, for it was killed
  std::optional<std::string> visible_devices;  // CUDA_VISIBLE_DEVICES; nullopt: not set
  std::optional<std::string> device_order;
  std::map<std::string, std::string> rank_variables;  // those that are set: RANK, LOCAL_RANK, …
  std::vector<std::string> argv;
  std::string cwd;  // working folder then
  Stack stack;
  std::optional<PythonFrame> culprit;
};

// A device was asked for by a number that the process has none of.
struct NoSuchDevice {
  pid_t pid = 0;
  std::string process;
  double time_s = 0;
  std::string call;  // "cuDeviceGet", or one that makes a context
  int ordinal = 0;
  std::optional<PythonFrame> culprit;
};

// Allocations that the driver refused for want of memory: of one thread, of one size, one after the
// other.
struct Shortage {
  std::optional<unsigned> gpu;  // index in the inventory
  pid_t pid = 0;
  std::string process;
  double time_s = 0;             // of the first
  std::string call;              // "cuMemAlloc_v2"
  std::uint64_t bytes = 0;       // asked for each time
  std::uint64_t held_bytes = 0;  // by the process's own calls on that GPU, at the first
  unsigned failures = 1;
  // The thread's next allocation was of the same size and succeeded: of `held_bytes`, what was
  // given back before it. nullopt: it was not.
  std::optional<std::uint64_t> given_back_bytes;
  std::optional<PythonFrame> culprit;
};

struct Sample {
  double time_s = 0;
  std::optional<std::uint64_t> memory_used_bytes;
  std::optional<double> power_w;
  std::optional<unsigned> sm_clock_mhz;
};

// One process on one GPU, as NVML listed it.
struct GpuProcess {
  pid_t pid = 0;
  std::optional<std::uint64_t> memory_bytes;  // the most that it was seen with
  // The most that it held by its own calls at one moment, by its counters file; nullopt: unknown.
  std::optional<std::uint64_t> allocated_peak_bytes{};
  bool of_job = false;
  std::string command;
};

// One GPU over the run.
struct GpuRun {
  gpu::Gpu gpu;
  bool allowed = false;
  std::vector<Sample> samples;  // time_s < 0: before the job
  // Allocations of the job that the driver refused for want of memory; nullopt: not all were
  // counted.
  std::optional<std::uint64_t> allocations_refused{};
  std::optional<unsigned> contexts;  // of the job, by the traces; nullopt: nothing was observed
  std::optional<std::uint64_t> job_memory_peak_bytes;  // by NVML's process list
  std::vector<GpuProcess> processes;       // every process ever seen on it during the run
  std::optional<bool> process_list_known;  // false: NVML gave none (permission, not supported)
  std::string state;                       // "", "lost", "not available: …"
};

struct Unobserved {
  pid_t pid = 0;
  std::string process;
  std::string why;  // "static binary", "opened the driver by its path", …
};

struct Orphan {
  pid_t pid = 0;
  std::string process;
  std::vector<unsigned> gpus;  // on which NVML listed it during the run
};

struct Coverage {
  unsigned processes = 0;  // processes of the job that had the driver mapped
  unsigned observed = 0;   // of those, with a trace
  std::vector<Unobserved> unobserved;
  std::uint64_t records_lost = 0;
};

// What `--mps` gave each process of the job.
struct MpsShare {
  double percent = 100;                       // of the multiprocessors
  std::optional<std::uint64_t> memory_bytes;  // nullopt: no limit of Corral's
  unsigned gpu = 0;                           // index in the inventory
  pid_t daemon_pid = 0;
  std::string daemon_enforced;  // what confines the daemon; "none"
};

struct Exit {
  std::optional<int> code;
  std::optional<int> signal;
};

// A limit of the job beside its GPUs.
struct HeldLimit {
  std::string name;          // "cpus", "mems", "memory", "pids"
  std::string text;          // for people: what, why and by what it is held
  std::string list;          // cpus, mems: "0-15"
  std::uint64_t amount = 0;  // memory: bytes; pids: processes and threads
  std::string why;           // "NUMA node 0 of GPU 1"; empty: the user gave the value
  std::string held_by;       // "cgroup v1 cpuset", "affinity"; empty: by nothing
  bool job_can_change = true;
};

// The container or the batch job in which the run was started.
struct Around {
  std::string kind;                     // "docker", "slurm", …
  std::string name;                     // "Slurm job 4711"
  std::string evidence;                 // "SLURM_JOB_ID"
  std::string given_by;                 // "SLURM_JOB_GPUS=2,3"; empty: it names none
  std::optional<unsigned> given_count;  // GPUs that it names
  std::optional<bool> held;             // nothing but those can be opened
  std::string text;                     // for people
};

// What was said before the job started.
struct Advice {
  std::string what;
  std::string instead;  // what to type; may be empty
  bool leaves = false;  // `what` stands in Confinement::not_covered too
};

struct Confinement {
  std::string enforced = "none";  // design.md section 7
  std::vector<std::string>
      layers;              // "cgroup v2", "Landlock ABI 7", "seccomp filter", "Landlock scope"
  bool requested = false;  // a selection was given at all
  bool nothing_to_refuse = false;  // the selection and --refuse leave no node out
  bool tight = false;
  bool as_root = false;
  std::optional<std::string> visible_devices;  // CUDA_VISIBLE_DEVICES as the job was given it
  std::vector<std::string> refused;            // node paths that the self-test saw refused
  std::vector<std::string> not_covered;        // what stays open on this host, in words
  std::vector<std::string> open_ways{};        // of those, who would work on any GPU for the job
  std::vector<std::string> general_limits;     // what the kind of promise always leaves open
  std::vector<HeldLimit> limits{};             // --cpus, --mems, --memory, --pids
  std::vector<Around> around{};
  std::vector<Advice> advice{};
};

// What the job of `corral trace` is meant to use: nothing was refused to it.
struct Expectation {
  // gpus: those with GpuRun::allowed. rank: each process the device of its own local rank.
  enum class Kind { none, gpus, rank };
  Kind kind = Kind::none;
  std::string text;     // of --expect
  bool denied = false;  // contexts elsewhere were refused inside the processes (--deny)
};

struct Run {
  std::string version;
  bool traced = false;  // by `corral trace`: watched only, `confinement` says nothing
  Expectation expectation;
  bool simulated = false;
  std::vector<std::string> command;
  std::int64_t started_realtime_ns = 0;
  double duration_s = 0;
  Exit exit;
  Confinement confinement;
  std::optional<MpsShare> mps;
  std::vector<GpuRun> gpus;
  std::vector<Context> contexts;
  std::vector<Init> inits;
  std::vector<NoSuchDevice> no_such_devices;
  std::vector<Shortage> shortages{};
  // The user's own files that stand in the stacks, by the key of source_key() in sources.h; files
  // that could not be read, or changed since the job began, are absent.
  std::map<std::string, std::string> sources;
  std::vector<Orphan> orphans;
  Coverage coverage;
  std::vector<std::string> notes;    // named degradations of corral itself
  std::vector<std::string> remarks;  // those that only somebody who asks wants to read
};

// Whether a GPU is outside what the whole job was given or is expected to use.
inline bool is_outside(const Run& run, const GpuRun& gpu) {
  return !gpu.allowed &&
         (run.confinement.requested || run.expectation.kind == Expectation::Kind::gpus);
}

// The initialisation that the context's process lived in, for exec keeps the pid; nullptr: not
// seen.
inline const Init* init_of(const Run& run, const Context& context) {
  const Init* last = nullptr;
  for (const Init& init : run.inits)
    if (init.pid == context.pid && init.result == 0 && init.time_s <= context.time_s) last = &init;
  return last;
}

}  // namespace corral::snapshot

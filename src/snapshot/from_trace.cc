// SPDX-License-Identifier: Apache-2.0
#include "snapshot/from_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/text.h"
#include "trace/own_code.h"

namespace corral::snapshot {
namespace {

constexpr std::size_t kMaxProcessBytes = 200;

// The function in the record of a context that the driver had to be asked for.
constexpr std::string_view kAskedFor = "cuDevicePrimaryCtxGetState";

// Global ranks first: they name a process of the job for good.
constexpr std::array<const char*, 5> kRankVariables = {
    "RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "MPI_LOCALRANKID"};

std::string process_text(const trace::ProcessTrace& trace) {
  std::vector<std::string> words;
  for (const std::string& word : trace.argv) words.push_back(shell_quote(word));
  std::string text = words.empty() ? trace.exe : join(words, " ");
  if (text.size() > kMaxProcessBytes) text = text.substr(0, kMaxProcessBytes) + "…";
  return text;
}

std::optional<std::string> variable(const trace::Event& event, const char* name) {
  const auto at = event.variables.find(name);
  return at == event.variables.end() ? std::nullopt : at->second;
}

std::optional<int> rank_of(const trace::ProcessTrace& trace) {
  for (const trace::Event& init : trace.inits)
    for (const char* name : kRankVariables)
      if (const auto text = variable(init, name))
        if (const auto rank = parse_number<int>(*text)) return rank;
  return std::nullopt;
}

std::vector<PythonFrame> frames_of(const std::vector<trace::PythonFrame>& from) {
  std::vector<PythonFrame> out;
  for (const trace::PythonFrame& frame : from)
    out.push_back({.file = frame.file, .line = frame.line, .function = frame.function});
  return out;
}

Stack stack_of(const trace::ProcessTrace& trace, const trace::Stack& from) {
  Stack out{.python = frames_of(from.python),
            .python_omitted = from.python_omitted,
            .native = {},
            .python_source = from.python_source,
            .main_thread = frames_of(from.main_thread),
            .main_thread_omitted = from.main_thread_omitted,
            .main_thread_source = from.main_thread_source};
  for (const trace::NativeFrame& frame : from.native) {
    NativeFrame native{.module = {}, .function = {}, .offset = frame.offset};
    if (frame.module) {
      const auto module = trace.modules.find(*frame.module);
      if (module != trace.modules.end())
        native.module = module->second.path.empty() ? trace.exe : module->second.path;
    }
    out.native.push_back(std::move(native));
  }
  return out;
}

// A GPU by the UUID that the driver told, or by its PCI address where it told none.
std::optional<unsigned> gpu_of(const trace::Device& device, const Run& run) {
  const std::string uuid = device.uuid_text();
  for (const GpuRun& gpu : run.gpus) {
    if (!uuid.empty() && gpu.gpu.uuid == "GPU-" + uuid) return gpu.gpu.index;
    for (const gpu::MigInstance& instance : gpu.gpu.mig)
      if (!uuid.empty() && instance.uuid == "MIG-" + uuid) return gpu.gpu.index;
  }
  if (device.pci.empty()) return std::nullopt;
  const auto pci = host::PciAddress::parse(device.pci);
  for (const GpuRun& gpu : run.gpus)
    if (pci && gpu.gpu.pci == *pci) return gpu.gpu.index;
  return std::nullopt;
}

double seconds(std::int64_t monotonic_ns, std::int64_t start_ns) {
  return static_cast<double>(monotonic_ns - start_ns) / 1e9;
}

void add_inits(const trace::ProcessTrace& trace, std::int64_t start_ns, Run& run) {
  for (const trace::Event& event : trace.inits) {
    Init init;
    init.pid = static_cast<pid_t>(trace.pid);
    init.parent_pid = static_cast<pid_t>(trace.parent_pid);
    init.process = process_text(trace);
    init.time_s = seconds(event.monotonic_ns, start_ns);
    init.result = event.result;
    if (trace.exit_monotonic_ns) init.exited_s = seconds(*trace.exit_monotonic_ns, start_ns);
    init.visible_devices = variable(event, "CUDA_VISIBLE_DEVICES");
    init.device_order = variable(event, "CUDA_DEVICE_ORDER");
    for (const char* name : kRankVariables)
      if (const auto value = variable(event, name)) init.rank_variables.emplace(name, *value);
    init.argv = trace.argv;
    init.cwd = event.cwd.empty() ? trace.cwd : event.cwd;
    init.stack = stack_of(trace, event.stack);
    init.culprit = culprit_of(init.stack.python);
    run.inits.push_back(std::move(init));
  }
}

// An event tells a variable only where it is not what it was at cuInit.
void take_visible_devices(const trace::ProcessTrace& trace, const trace::Event& event,
                          Context& context) {
  context.changed_variables = event.variables;
  if (const auto now = event.variables.find("CUDA_VISIBLE_DEVICES"); now != event.variables.end()) {
    context.visible_devices_changed = true;
    context.visible_devices = now->second;
    return;
  }
  for (const trace::Event& init : trace.inits)
    if (init.result == 0) context.visible_devices = variable(init, "CUDA_VISIBLE_DEVICES");
}

constexpr int kInvalidDevice = 101;  // CUDA_ERROR_INVALID_DEVICE

void add_no_such_devices(const trace::ProcessTrace& trace, std::int64_t start_ns, Run& run) {
  const auto add = [&](const trace::Event& event, int ordinal) {
    run.no_such_devices.push_back({.pid = static_cast<pid_t>(trace.pid),
                                   .process = process_text(trace),
                                   .time_s = seconds(event.monotonic_ns, start_ns),
                                   .call = event.function,
                                   .ordinal = ordinal,
                                   .culprit = culprit_of(stack_of(trace, event.stack).python)});
  };
  for (const trace::NoSuchDeviceEvent& event : trace.no_such_devices) add(event, event.ordinal);
  for (const trace::ContextEvent& event : trace.contexts)
    if (event.result == kInvalidDevice && event.device.ordinal) add(event, *event.device.ordinal);
}

void add_contexts(const trace::ProcessTrace& trace, std::int64_t start_ns, Run& run) {
  // Handles of this process's contexts that have not ended, by position in run.contexts.
  std::vector<std::pair<std::uint64_t, std::size_t>> open;
  for (const trace::ContextEvent& event : trace.contexts) {
    if ((event.result != 0 && !event.denied) || event.view) continue;
    if (event.ended) {
      // Handle 0 is that of a context which no hook saw made: one a device.
      const auto at = std::ranges::find_if(open, [&](const auto& candidate) {
        return candidate.first == event.context &&
               (event.context != 0 ||
                run.contexts[candidate.second].ordinal == event.device.ordinal);
      });
      if (at == open.end()) continue;
      run.contexts[at->second].ended_s = seconds(event.monotonic_ns, start_ns);
      open.erase(at);
      continue;
    }
    Context context;
    context.gpu = gpu_of(event.device, run);
    context.gpu_uuid = context.gpu ? run.gpus[*context.gpu].gpu.uuid : event.device.uuid_text();
    context.ordinal = event.device.ordinal;
    context.pid = static_cast<pid_t>(trace.pid);
    context.process = process_text(trace);
    context.thread = event.tid == trace.pid ? "MainThread" : event.thread_name;
    context.tid = static_cast<pid_t>(event.tid);
    context.rank = rank_of(trace);
    context.time_s = seconds(event.monotonic_ns, start_ns);
    context.call = event.function;
    context.found = event.found;
    context.denied = event.denied;
    take_visible_devices(trace, event, context);
    context.cwd = event.cwd.empty() ? trace.cwd : event.cwd;
    if (event.function == kAskedFor)
      context.stack.python_source = "no hook saw it made";
    else
      context.stack = stack_of(trace, event.stack);
    if (!event.found) context.culprit = culprit_of(context.stack.python);
    if (!event.denied) open.emplace_back(event.context, run.contexts.size());
    run.contexts.push_back(std::move(context));
  }
}

void add_shortages(const trace::ProcessTrace& trace, std::int64_t start_ns, Run& run) {
  // Those of this process that are not over: the thread's, by position in run.shortages.
  std::map<std::uint32_t, std::size_t> open;
  for (const trace::ShortageEvent& event : trace.shortages) {
    const auto at = open.find(event.tid);
    const bool same = at != open.end() && run.shortages[at->second].bytes == event.bytes &&
                      run.shortages[at->second].gpu == gpu_of(event.device, run) &&
                      (event.over || event.failures > 1);
    if (!same) {
      open[event.tid] = run.shortages.size();
      run.shortages.push_back({.gpu = gpu_of(event.device, run),
                               .pid = static_cast<pid_t>(trace.pid),
                               .process = process_text(trace),
                               .time_s = seconds(event.monotonic_ns, start_ns),
                               .call = event.function,
                               .bytes = event.bytes,
                               .held_bytes = event.held_bytes,
                               .failures = event.failures,
                               .given_back_bytes = {},
                               .culprit = culprit_of(stack_of(trace, event.stack).python)});
    }
    Shortage& shortage = run.shortages[open[event.tid]];
    shortage.failures = event.failures;
    if (!event.over) continue;
    shortage.given_back_bytes = event.given_back_bytes;
    open.erase(event.tid);
  }
}

// Every process that was observed counts its own; one without a counters file leaves it unknown.
void count_refusals(const std::vector<trace::ProcessTrace>& traces, Run& run) {
  for (const trace::ProcessTrace& trace : traces)
    if (!trace.counters) return;
  for (GpuRun& gpu : run.gpus) gpu.allocations_refused = 0;
  for (const trace::ProcessTrace& trace : traces)
    for (const trace::DeviceCounters& device : trace.counters->devices)
      if (const auto gpu = gpu_of(device.device, run))
        *run.gpus[*gpu].allocations_refused += device.out_of_memory;
}

// What the processes with this pid allocated on the GPU; exec keeps the pid.
std::optional<std::uint64_t> allocated_peak_bytes(
    const std::vector<const trace::ProcessTrace*>& traces, unsigned gpu, const Run& run) {
  if (traces.empty()) return std::nullopt;
  std::uint64_t peak = 0;
  for (const trace::ProcessTrace* trace : traces) {
    if (!trace->counters || trace->counters->unknown_device > 0) return std::nullopt;
    for (const trace::DeviceCounters& device : trace->counters->devices) {
      if (gpu_of(device.device, run) != gpu) continue;
      if (device.untracked > 0) return std::nullopt;
      peak = std::max(peak, device.bytes_peak);
    }
  }
  return peak;
}

void add_allocations(const std::vector<trace::ProcessTrace>& traces, Run& run) {
  std::map<pid_t, std::vector<const trace::ProcessTrace*>> by_pid;
  for (const trace::ProcessTrace& trace : traces)
    by_pid[static_cast<pid_t>(trace.pid)].push_back(&trace);
  for (GpuRun& gpu : run.gpus) {
    for (GpuProcess& process : gpu.processes) {
      // Of two processes that had the pid one after the other nobody knows which trace is whose.
      const bool only_one = std::ranges::count(gpu.processes, process.pid, &GpuProcess::pid) == 1;
      if (process.of_job && only_one)
        process.allocated_peak_bytes =
            allocated_peak_bytes(by_pid[process.pid], gpu.gpu.index, run);
    }
  }
}

}  // namespace

bool is_own_code(std::string_view file) { return trace::is_own_code(file.data(), file.size()); }

std::optional<PythonFrame> culprit_of(std::span<const PythonFrame> innermost_first) {
  const PythonFrame* text = nullptr;
  for (const PythonFrame& frame : innermost_first) {
    if (!is_own_code(frame.file)) continue;
    if (!trace::is_code_text(frame.file.data(), frame.file.size())) return frame;
    if (text == nullptr) text = &frame;
  }
  if (text != nullptr) return *text;
  if (innermost_first.empty()) return std::nullopt;
  return innermost_first.front();
}

void add_traces(const std::vector<trace::ProcessTrace>& traces, std::int64_t start_ns, Run& run) {
  for (const trace::ProcessTrace& trace : traces) {
    add_inits(trace, start_ns, run);
    add_contexts(trace, start_ns, run);
    add_no_such_devices(trace, start_ns, run);
    add_shortages(trace, start_ns, run);
    run.coverage.records_lost += trace.records_lost();
    if (trace.damage) run.notes.push_back(trace.damage->what);
    if (trace.cut)
      run.notes.push_back(fmt::format(
          "the trace of pid {} ends within a record: what that told is lost", trace.pid));
  }
  add_allocations(traces, run);
  count_refusals(traces, run);
  std::ranges::stable_sort(run.shortages, {}, &Shortage::time_s);
  std::ranges::stable_sort(run.contexts, {}, &Context::time_s);
  std::ranges::stable_sort(run.inits, {}, &Init::time_s);
  for (GpuRun& gpu : run.gpus) gpu.contexts = 0;
  bool unplaced = false;
  for (const Context& context : run.contexts) {
    if (context.denied) continue;
    if (context.gpu)
      ++*run.gpus[*context.gpu].contexts;
    else
      unplaced = true;
  }
  if (!unplaced) return;
  // It may be on any of those on which none was seen.
  run.notes.emplace_back("a context is on a device that is not known here: see --report");
  for (GpuRun& gpu : run.gpus)
    if (gpu.contexts == 0U) gpu.contexts.reset();
}

}  // namespace corral::snapshot

// SPDX-License-Identifier: Apache-2.0
// The sampling thread and what it shares with its owner.
#include "sample/sampler.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/signals.h"
#include "sample/history.h"
#include "sample/processes.h"

namespace corral::sample {
namespace {

using gpu::NvmlReturn;
using Clock = std::chrono::steady_clock;

enum Metric : std::size_t { kMemory, kPower, kClock, kMetrics };
constexpr std::array<const char*, kMetrics> kMetricNames = {"memory", "power", "SM clock"};

// More than the readings of an idle GPU move by, and less than a context takes.
constexpr std::uint64_t kJumpBytes = 64ULL << 20;

// One GPU in the thread's hands: which handle it has, and what is not worth asking again.
struct Source {
  std::optional<gpu::NvmlDevice> device;
  std::array<bool, kMetrics> unsupported = {};
  std::optional<std::uint64_t> memory_bytes;         // last reading
  std::optional<std::uint64_t> listed_memory_bytes;  // when its processes were listed last

  // Somebody came since the last list: by the time of the next regular one they may be gone.
  bool jumped() const {
    return device && memory_bytes && listed_memory_bytes &&
           *memory_bytes >= *listed_memory_bytes + kJumpBytes;
  }
};

// What a round found out about one GPU, to be filed under the lock.
struct Found {
  std::optional<Reading> reading;
  std::array<std::optional<NvmlReturn>, kMetrics> failures = {};
  std::optional<std::uint64_t> memory_total_bytes;
  bool lost = false;
  bool reserve_included = false;
};

// One GPU's results so far.
struct Filed {
  explicit Filed(std::size_t history_limit) : history(history_limit) {}

  History history;
  GpuProcesses processes;  // as the last slow round left them
  std::optional<bool> process_list_known;
  std::optional<std::uint64_t> memory_total_bytes;
  std::string state;
  std::set<std::string> notes;
};

template <class Value>
std::optional<Value> take(gpu::NvmlResult<Value> result, Metric metric, Source& source,
                          Found& found) {
  if (result) return *std::move(result);
  const NvmlReturn code = result.error().code;
  found.failures[metric] = code;
  if (code == NvmlReturn::gpu_is_lost) found.lost = true;
  if (code == NvmlReturn::not_supported || code == NvmlReturn::function_not_found)
    source.unsupported[metric] = true;
  return std::nullopt;
}

Found read_fast(const gpu::Nvml& nvml, Source& source) {
  Found found;
  Reading reading;
  reading.time_ns = monotonic_ns();
  if (!source.unsupported[kMemory]) {
    if (const auto memory = take(nvml.memory(*source.device), kMemory, source, found)) {
      reading.memory_used_bytes = memory->used_bytes;
      found.reserve_included = !memory->reserved_bytes;
      if (memory->total_bytes > 0) found.memory_total_bytes = memory->total_bytes;
    }
  }
  if (!source.unsupported[kPower])
    reading.power_w = take(nvml.power_w(*source.device), kPower, source, found);
  if (!source.unsupported[kClock])
    reading.sm_clock_mhz = take(nvml.sm_clock_mhz(*source.device), kClock, source, found);
  if (!found.lost) found.reading = reading;
  return found;
}

}  // namespace

struct Sampler::Shared {
  Shared(gpu::NvmlOpener opener, const gpu::Inventory& inventory, Options given)
      : open_nvml(std::move(opener)),
        options(std::move(given)),
        gpus(inventory.gpus),
        sources(gpus.size()),
        processes(gpus.size()),
        book(options.processes, options.job_ancestor, options.not_of_job, inventory.simulated) {
    for (std::size_t i = 0; i < gpus.size(); ++i) filed.emplace_back(options.history_limit);
  }

  // Before the thread, unchanged by it.
  const gpu::NvmlOpener open_nvml;
  const Options options;
  const std::vector<gpu::Gpu> gpus;

  // The thread's own until it is done; never waited for.
  std::shared_ptr<const gpu::Nvml> nvml;
  std::vector<Source> sources;
  std::vector<GpuProcesses> processes;
  ProcessBook book;

  std::thread thread;
  Clock::time_point started;

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  bool stopping = false;
  bool asked = false;  // NVML was: from here on the thread may be stuck in it
  bool read_once = false;
  bool done = false;
  std::string failure;  // why NVML could not be opened
  std::vector<Filed> filed;

  void run(std::chrono::nanoseconds delay);
  bool open(std::chrono::nanoseconds delay);
  void sample();
  void open_devices();
  void fast_round();
  void slow_round();
  void file(std::size_t i, const Found& found);
  GpuSamples samples_of(std::size_t i, std::int64_t start_ns) const;
};

// false: there will be no readings.
bool Sampler::Shared::open(std::chrono::nanoseconds delay) {
  {
    std::unique_lock lock(mutex);
    if (changed.wait_for(lock, delay, [this] { return stopping; })) return false;
    asked = true;
  }
  auto opened = open_nvml();
  const std::lock_guard lock(mutex);
  if (opened)
    nvml = *std::move(opened);
  else
    failure = opened.error().what;
  return nvml && !stopping;
}

void Sampler::Shared::open_devices() {
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    // By address: the numbers of NVML and of the inventory could differ.
    const auto device = nvml->device(gpus[i].pci);
    if (device) {
      sources[i].device = *device;
      continue;
    }
    const std::lock_guard lock(mutex);
    filed[i].state = device.error().code == NvmlReturn::gpu_is_lost
                         ? "lost"
                         : "not available: " + gpu::describe(device.error().code);
  }
}

void Sampler::Shared::file(std::size_t i, const Found& found) {
  const std::lock_guard lock(mutex);
  Filed& into = filed[i];
  if (found.reading) into.history.add(*found.reading);
  if (found.memory_total_bytes) into.memory_total_bytes = found.memory_total_bytes;
  if (found.lost) into.state = "lost";
  for (std::size_t metric = 0; metric < kMetrics; ++metric)
    if (const auto code = found.failures[metric]; code && *code != NvmlReturn::gpu_is_lost)
      into.notes.insert(fmt::format("{}: {}", kMetricNames[metric], gpu::describe(*code)));
  if (found.reserve_included)
    into.notes.insert("memory: with the driver's own reserve, which this driver does not tell");
}

void Sampler::Shared::fast_round() {
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (!sources[i].device) continue;
    const Found found = read_fast(*nvml, sources[i]);
    if (found.lost) sources[i].device.reset();
    if (found.reading) sources[i].memory_bytes = found.reading->memory_used_bytes;
    file(i, found);
  }
}

void Sampler::Shared::slow_round() {
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (!sources[i].device) continue;
    const auto compute = nvml->compute_processes(*sources[i].device);
    const auto graphics = nvml->graphics_processes(*sources[i].device);
    if (!compute && compute.error().code == NvmlReturn::gpu_is_lost) {
      sources[i].device.reset();
      const std::lock_guard lock(mutex);
      filed[i].state = "lost";
      continue;
    }
    processes[i].add(compute, graphics, book);
    sources[i].listed_memory_bytes = sources[i].memory_bytes;
  }
  // Only now: a list that names our processes makes the other GPUs' lists believable, too.
  const std::lock_guard lock(mutex);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    filed[i].processes = processes[i];
    filed[i].process_list_known = processes[i].known(book);
  }
}

void Sampler::Shared::sample() {
  open_devices();
  auto next_fast = Clock::now();
  auto next_slow = next_fast;
  for (bool last = false;;) {
    fast_round();
    if (last || Clock::now() >= next_slow || std::ranges::any_of(sources, &Source::jumped)) {
      slow_round();
      next_slow = std::max(next_slow + options.slow_interval, Clock::now());
    }
    // After a stall the missed rounds are left out, not made up for.
    next_fast = std::max(next_fast + options.fast_interval, Clock::now());

    std::unique_lock lock(mutex);
    read_once = true;
    changed.notify_all();
    if (last) break;
    last = changed.wait_until(lock, next_fast, [this] { return stopping; });
  }
}

void Sampler::Shared::run(std::chrono::nanoseconds delay) {
  ::pthread_setname_np(::pthread_self(), "corral-sample");
  if (open(delay)) sample();
  const std::lock_guard lock(mutex);
  done = true;
  changed.notify_all();
}

GpuSamples Sampler::Shared::samples_of(std::size_t i, std::int64_t start_ns) const {
  const Filed& from = filed[i];
  GpuSamples out;
  out.gpu = gpus[i].index;
  out.samples = from.history.samples(start_ns);
  out.processes = from.processes.processes();
  out.process_list_known = from.process_list_known;
  out.memory_total_bytes = from.memory_total_bytes;
  out.job_memory_peak_bytes = from.processes.job_memory_peak_bytes();
  out.state = open_nvml && failure.empty() ? from.state : "not available: no NVML";
  return out;
}

Sampler::Sampler(gpu::NvmlOpener nvml, const gpu::Inventory& inventory, Options options)
    : shared_(std::make_shared<Shared>(std::move(nvml), inventory, std::move(options))) {}

Sampler::~Sampler() { finish(); }

void Sampler::start(std::chrono::nanoseconds delay) {
  if (!shared_->open_nvml || shared_->gpus.empty() || shared_->thread.joinable()) return;
  const SignalsBlocked blocked;  // signals are for the launcher's thread
  shared_->started = Clock::now();
  shared_->thread = std::thread([shared = shared_, delay] { shared->run(delay); });
}

bool Sampler::before() {
  start();
  if (!shared_->thread.joinable()) return shared_->gpus.empty();
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait_for(lock, shared_->options.patience,
                            [this] { return shared_->read_once || shared_->done; });
  return shared_->read_once;
}

Sampler::Ending Sampler::finish() {
  if (!shared_->thread.joinable()) return Ending::complete;
  std::unique_lock lock(shared_->mutex);
  shared_->stopping = true;
  shared_->changed.notify_all();
  const bool comes_back = shared_->read_once || !shared_->asked;
  const auto limit = comes_back ? shared_->options.patience : std::chrono::nanoseconds{};
  if (shared_->changed.wait_for(lock, limit, [this] { return shared_->done; })) {
    lock.unlock();
    shared_->thread.join();
    const bool all_said = shared_->read_once || !shared_->failure.empty();
    return all_said ? Ending::complete : Ending::too_short;
  }
  shared_->thread.detach();
  const bool had_time = Clock::now() - shared_->started >= shared_->options.patience;
  return comes_back || had_time ? Ending::not_answering : Ending::too_short;
}

Sampled Sampler::stop(std::int64_t start_ns) {
  Sampled out;
  switch (finish()) {
    case Ending::complete:
      break;
    case Ending::not_answering:
      out.notes.push_back(
          fmt::format("NVML did not answer for {:.1f} s: readings are missing",
                      std::chrono::duration<double>(shared_->options.patience).count()));
      break;
    case Ending::too_short:
      out.remarks.emplace_back("the job ended before NVML had read every GPU once");
      break;
  }
  const Shared& shared = *shared_;
  const std::lock_guard lock(shared_->mutex);
  if (!shared.failure.empty()) out.notes.push_back(shared.failure);
  for (std::size_t i = 0; i < shared.gpus.size(); ++i) {
    out.gpus.push_back(shared.samples_of(i, start_ns));
    for (const std::string& note : shared.filed[i].notes)
      out.notes.push_back(fmt::format("GPU {}: {}", shared.gpus[i].index, note));
    if (const std::string& failure = shared.filed[i].processes.failure(); !failure.empty())
      out.notes.push_back(fmt::format("GPU {}: process list: {}", shared.gpus[i].index, failure));
    else if (out.gpus.back().process_list_known == false)
      out.notes.push_back(fmt::format(
          "GPU {}: process list: its pids are not those of this container", shared.gpus[i].index));
  }
  return out;
}

void hand_over(GpuSamples samples, snapshot::GpuRun& run) {
  run.samples = std::move(samples.samples);
  run.processes = std::move(samples.processes);
  run.job_memory_peak_bytes = samples.job_memory_peak_bytes;
  run.process_list_known = samples.process_list_known;
  if (!run.gpu.memory_total_bytes) run.gpu.memory_total_bytes = samples.memory_total_bytes;
  run.state = std::move(samples.state);
}

}  // namespace corral::sample

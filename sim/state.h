// SPDX-License-Identifier: Apache-2.0
// The file that the simulated driver, the simulated NVML and corral-sim share: what the machine is,
// and who uses it right now.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace corral::sim {

inline constexpr std::uint32_t kStateMagic = 0x434d4953;  // "SIMC" in memory
inline constexpr std::uint32_t kStateVersion = 2;
inline constexpr unsigned kMaxGpus = 16;
inline constexpr unsigned kMaxMig = 8;
inline constexpr unsigned kMaxProcesses = 1024;
inline constexpr std::uint64_t kMiB = 1024 * 1024;

struct MigInstance {
  char uuid[64];     // "MIG-…"
  char profile[24];  // "3g.40gb"
  std::uint32_t gpu_instance;
  std::uint32_t compute_instance;
  std::uint32_t gpu_capability_minor;  // N of /dev/nvidia-caps/nvidia-capN
  std::uint32_t compute_capability_minor;
  std::uint32_t multiprocessors;
  std::uint64_t memory_bytes;
};

struct Gpu {
  char name[96];
  char uuid[48];  // "GPU-…"
  std::uint32_t pci_domain, pci_bus, pci_device, pci_function;
  std::uint32_t pci_device_id;     // device << 16 | vendor
  std::uint32_t pci_subsystem_id;  // likewise
  std::uint32_t minor;             // N of /dev/nvidiaN
  std::uint32_t speed_rank;        // CUDA_DEVICE_ORDER=FASTEST_FIRST puts the highest first
  std::uint32_t compute_major, compute_minor;
  std::uint32_t multiprocessors;
  std::uint64_t memory_bytes;
  std::uint64_t reserved_bytes;  // what an untouched GPU reads as used in the old memory query
  std::uint64_t context_bytes;   // what one context costs its process
  std::uint64_t awake_bytes;     // used beyond the processes while at least one context exists
  std::uint32_t idle_mw, context_mw;
  std::uint32_t idle_mhz, context_mhz, memory_mhz, video_mhz;
  std::uint32_t idle_c, context_c;
  std::uint32_t limit_mw, limit_min_mw, limit_max_mw;  // limit_mw: the card's default
  std::atomic<std::uint32_t> set_limit_mw;             // set by a client; 0: the default holds
  std::uint32_t persistence;
  std::uint32_t mig_enabled;
  std::uint32_t mig_count;
  MigInstance mig[kMaxMig];

  // CLOCK_MONOTONIC when the last context that raises the clocks was seen to be gone; 0: never had
  // one.
  std::atomic<std::int64_t> quiet_since_ns;
};

// What one process holds on one GPU. Only that process writes it.
struct Holding {
  std::atomic<std::uint64_t> allocated_bytes;
  std::atomic<std::uint32_t> contexts;
};

inline constexpr std::uint32_t kNoMig = ~0U;

struct Process {
  std::atomic<std::uint32_t> pid;  // 0: free
  std::atomic<std::uint32_t> mig;  // gpu * kMaxMig + instance, or kNoMig
  std::atomic<std::uint32_t>
      keeps_it_calm;  // CUDA_DISABLE_PERF_BOOST: contexts that do not raise the clocks
  std::uint32_t padding;
  Holding gpu[kMaxGpus];
};

struct State {
  std::uint32_t magic, version, bytes, gpu_count;
  char driver_version[80];
  char nvml_version[80];
  std::int32_t cuda_version;  // 13000
  std::uint32_t padding;
  std::int64_t decay_ns;  // from the last context's end until the GPU is idle again
  Gpu gpus[kMaxGpus];
  std::atomic<std::uint32_t> processes_used;  // slots from here on were never claimed
  Process processes[kMaxProcesses];
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// A process's view of the shared state. A slot belongs to the process whose open file description
// holds a lock on the slot's byte: the kernel drops it at exit, kill and exec alike, so nothing
// that dies can block or mislead the others.
class Machine {
 public:
  // Maps $CORRAL_SIM/state; false when there is none or it is of another version. Where it cannot
  // be written it is mapped for reading.
  bool open();
  bool is_open() const { return state_ != nullptr; }
  State* state() const { return state_; }
  const char* folder() const { return folder_; }

  // This process's slot, claimed at the first call; nullptr when all are taken.
  Process* own();
  // Gives the slot back, noting that its GPUs are quiet from now on.
  void leave();

  // Slot `i` belongs to someone alive. A dead one's slot is freed on the way.
  bool alive(unsigned i);

  // Bytes that all living processes hold on a GPU, contexts included, in the driver's 2 MiB steps.
  std::uint64_t used_bytes(unsigned gpu);
  // The same without asking who is alive: never less, and without a system call.
  std::uint64_t used_bytes_at_most(unsigned gpu) const;
  // The part of used_bytes() that processes on one MIG instance hold.
  std::uint64_t instance_used_bytes(unsigned gpu, unsigned mig);
  // Contexts of living processes on a GPU.
  unsigned contexts(unsigned gpu);
  // Power in mW, SM clock in MHz and temperature in °C as they follow from the contexts of now and
  // of the last seconds.
  struct Climate {
    std::uint32_t power_mw, clock_mhz, temperature_c;
    bool idle;
  };
  Climate climate(unsigned gpu);
  // The last context that raises the clocks ended just now.
  void note_quiet(unsigned gpu);

 private:
  void free_slot(Process& process);

  std::atomic_flag freeing_ = ATOMIC_FLAG_INIT;

  int fd_ = -1;
  bool writable_ = false;
  int own_slot_ = -1;
  State* state_ = nullptr;
  char folder_[4096] = {};
};

// Bytes that one process holds on a GPU, contexts included.
std::uint64_t holding_bytes(const State& state, const Process& process, unsigned gpu);

// What opening a device node below $CORRAL_SIM/dev says. The nodes have the real numbers and no
// driver behind them, so an allowed open ends in ENXIO; a refused one in EPERM or EACCES.
// `keep` leaves the descriptor open where there is one, as the real driver does.
bool node_opens(const char* folder, const char* name, int flags, bool keep);

}  // namespace corral::sim

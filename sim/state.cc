// SPDX-License-Identifier: Apache-2.0
// Reads and writes the shared state. Linked into the simulated libraries: libc only.
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

namespace corral::sim {
namespace {

std::int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

struct flock slot_lock(unsigned slot, short type) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = slot;
  lock.l_len = 1;
  return lock;
}

// Between `full` (at the start) and `rest` (after the decay).
std::uint32_t decayed(std::uint32_t full, std::uint32_t rest, std::int64_t passed_ns,
                      std::int64_t decay_ns) {
  if (passed_ns >= decay_ns) return rest;
  const auto left = static_cast<double>(decay_ns - passed_ns) / static_cast<double>(decay_ns);
  return rest + static_cast<std::uint32_t>((static_cast<double>(full) - rest) * left);
}

}  // namespace

std::uint64_t holding_bytes(const State& state, const Process& process, unsigned gpu) {
  constexpr std::uint64_t kStep = 2 * kMiB;
  const Holding& holding = process.gpu[gpu];
  const std::uint64_t allocated = holding.allocated_bytes.load(std::memory_order_relaxed);
  return holding.contexts.load(std::memory_order_relaxed) * state.gpus[gpu].context_bytes +
         (allocated + kStep - 1) / kStep * kStep;
}

bool node_opens(const char* folder, const char* name, int flags, bool keep) {
  char path[4200];
  snprintf(path, sizeof path, "%s/dev/%s", folder, name);
  const int fd = ::open(path, flags | O_CLOEXEC);
  if (fd < 0) return errno == ENXIO || errno == ENODEV;
  // Another device mounted over the node, such as /dev/null, opens and is still no GPU.
  struct stat node{};
  const bool ours = fstat(fd, &node) == 0 && S_ISREG(node.st_mode);
  if (!ours || !keep) close(fd);
  return ours;
}

bool Machine::open() {
  if (state_ != nullptr) return true;
  const char* folder = getenv("CORRAL_SIM");
  if (folder == nullptr || strlen(folder) >= sizeof folder_) return false;
  memcpy(folder_, folder, strlen(folder) + 1);
  char path[4200];
  snprintf(path, sizeof path, "%s/state", folder_);
  fd_ = ::open(path, O_RDWR | O_CLOEXEC);
  writable_ = fd_ >= 0;
  if (!writable_) fd_ = ::open(path, O_RDONLY | O_CLOEXEC);
  struct stat file{};
  if (fd_ < 0 || fstat(fd_, &file) != 0 || file.st_size != sizeof(State)) {
    if (fd_ >= 0) close(fd_);
    return false;
  }
  void* map = mmap(nullptr, sizeof(State), writable_ ? PROT_READ | PROT_WRITE : PROT_READ,
                   MAP_SHARED, fd_, 0);
  auto* state = static_cast<State*>(map);
  if (map == MAP_FAILED || state->magic != kStateMagic || state->version != kStateVersion ||
      state->bytes != sizeof(State)) {
    if (map != MAP_FAILED) munmap(map, sizeof(State));
    close(fd_);
    return false;
  }
  state_ = state;
  return true;
}

Process* Machine::own() {
  if (own_slot_ >= 0) return &state_->processes[own_slot_];
  if (!writable_) return nullptr;
  for (unsigned i = 0; i < kMaxProcesses; ++i) {
    struct flock lock = slot_lock(i, F_WRLCK);
    if (fcntl(fd_, F_OFD_SETLK, &lock) != 0) continue;
    Process& process = state_->processes[i];
    free_slot(process);
    for (Holding& holding : process.gpu) {
      holding.allocated_bytes = 0;
      holding.contexts = 0;
    }
    process.mig = kNoMig;
    const char* calm = getenv("CUDA_DISABLE_PERF_BOOST");
    process.keeps_it_calm = calm != nullptr && strcmp(calm, "1") == 0;
    std::uint32_t used = state_->processes_used;
    while (used < i + 1 && !state_->processes_used.compare_exchange_weak(used, i + 1)) {
    }
    process.pid = static_cast<std::uint32_t>(getpid());
    own_slot_ = static_cast<int>(i);
    return &process;
  }
  return nullptr;
}

void Machine::note_quiet(unsigned gpu) { state_->gpus[gpu].quiet_since_ns = now_ns(); }

void Machine::free_slot(Process& process) {
  if (process.pid == 0) return;
  for (unsigned gpu = 0; gpu < state_->gpu_count && !process.keeps_it_calm; ++gpu) {
    if (process.gpu[gpu].contexts != 0) note_quiet(gpu);
  }
  process.pid = 0;
}

void Machine::leave() {
  if (own_slot_ < 0) return;
  free_slot(state_->processes[own_slot_]);
  struct flock lock = slot_lock(static_cast<unsigned>(own_slot_), F_UNLCK);
  fcntl(fd_, F_OFD_SETLK, &lock);
  own_slot_ = -1;
}

bool Machine::alive(unsigned i) {
  Process& process = state_->processes[i];
  if (process.pid == 0) return false;
  if (static_cast<int>(i) == own_slot_) return true;
  struct flock lock = slot_lock(i, F_WRLCK);
  if (fcntl(fd_, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK) return true;
  // The lock is this process's, not this thread's: one thread frees at a time, the others go on.
  if (!writable_ || freeing_.test_and_set()) return false;
  lock = slot_lock(i, F_WRLCK);
  if (fcntl(fd_, F_OFD_SETLK, &lock) == 0) {
    free_slot(process);
    lock = slot_lock(i, F_UNLCK);
    fcntl(fd_, F_OFD_SETLK, &lock);
  }
  freeing_.clear();
  return false;
}

std::uint64_t Machine::used_bytes(unsigned gpu) {
  std::uint64_t bytes = 0;
  bool awake = false;
  const unsigned used = state_->processes_used;
  for (unsigned i = 0; i < used; ++i) {
    const Process& process = state_->processes[i];
    const std::uint64_t held = process.pid == 0 ? 0 : holding_bytes(*state_, process, gpu);
    if (held == 0 || !alive(i)) continue;
    bytes += held;
    awake = true;
  }
  return bytes + (awake ? state_->gpus[gpu].awake_bytes : 0);
}

std::uint64_t Machine::used_bytes_at_most(unsigned gpu) const {
  std::uint64_t bytes = state_->gpus[gpu].awake_bytes;
  const unsigned used = state_->processes_used;
  for (unsigned i = 0; i < used; ++i) bytes += holding_bytes(*state_, state_->processes[i], gpu);
  return bytes;
}

std::uint64_t Machine::instance_used_bytes(unsigned gpu, unsigned mig) {
  std::uint64_t bytes = 0;
  const unsigned used = state_->processes_used;
  for (unsigned i = 0; i < used; ++i) {
    const Process& process = state_->processes[i];
    if (process.mig == gpu * kMaxMig + mig && alive(i))
      bytes += holding_bytes(*state_, process, gpu);
  }
  return bytes;
}

unsigned Machine::contexts(unsigned gpu) {
  unsigned count = 0;
  const unsigned used = state_->processes_used;
  for (unsigned i = 0; i < used; ++i) {
    const unsigned held = state_->processes[i].gpu[gpu].contexts;
    if (held != 0 && alive(i)) count += held;
  }
  return count;
}

Machine::Climate Machine::climate(unsigned index) {
  const Gpu& gpu = state_->gpus[index];
  const unsigned used = state_->processes_used;
  for (unsigned i = 0; i < used; ++i) {
    const Process& process = state_->processes[i];
    if (process.pid != 0 && process.gpu[index].contexts != 0 && !process.keeps_it_calm &&
        alive(i)) {
      return {gpu.context_mw, gpu.context_mhz, gpu.context_c, false};
    }
  }
  const std::int64_t since = gpu.quiet_since_ns;
  const std::int64_t passed = since == 0 ? state_->decay_ns : now_ns() - since;
  // The clock stays up for the first part and then falls in one step; the power follows slowly.
  const bool clock_up = passed < state_->decay_ns / 3;
  return {decayed(gpu.context_mw, gpu.idle_mw, passed, state_->decay_ns),
          clock_up ? gpu.context_mhz : gpu.idle_mhz,
          decayed(gpu.context_c, gpu.idle_c, passed, state_->decay_ns), !clock_up};
}

}  // namespace corral::sim

// SPDX-License-Identifier: Apache-2.0
#include "shim/state.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim/core.h"
#include "shim/environment.h"
#include "shim/kept_variables.h"

namespace corral::shim {
State state_of_process;

namespace {

State& state = state_of_process;

// What a child of fork still knows of its parent.
struct Inherited {
  int pid;  // of the process that opened
  trace::Writer writer_of_parent;
};
Inherited inherited;

int load(const int& value) { return __atomic_load_n(&value, __ATOMIC_ACQUIRE); }

bool change(int& value, int from, int to) {
  return __atomic_compare_exchange_n(&value, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

int own_pid() { return static_cast<int>(syscall(SYS_getpid)); }

void pause_a_little() {
  const struct timespec moment = {.tv_sec = 0, .tv_nsec = 200'000};
  syscall(SYS_nanosleep, &moment, nullptr);
}

bool open_in_folder() {
  char folder[3072];
  Variable variable = {.name = "CORRAL_TRACE_DIR",
                       .value = folder,
                       .capacity = sizeof folder - 1,
                       .bytes = 0,
                       .set = false,
                       .cut = false};
  read_variables(&variable, 1);
  if (!variable.set || variable.cut) return false;
  folder[variable.bytes] = '\0';
  return trace::open_writer(state.writer, folder, state.scratch[0]);
}

State* wait_for_opener() {
  for (int i = 0; i < 500 && load(state.phase) == kOpening; ++i) {
    // A signal handler that interrupted the opening thread would wait for itself.
    if (load(state.opener_tid) == static_cast<int>(own_tid())) return nullptr;
    pause_a_little();
  }
  change(state.phase, kOpening, kOff);  // the opener is gone
  const int phase = load(state.phase);
  return phase == kReady || phase == kReadyUnlessForked ? &state : nullptr;
}

State* open_as_the_one() {
  __atomic_store_n(&state.opener_tid, static_cast<int>(own_tid()), __ATOMIC_RELEASE);
  // Our copy of a parent's descriptor: the parent's file is the parent's.
  trace::close_descriptor(inherited.writer_of_parent);
  inherited.pid = own_pid();
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
  const bool wiped = madvise(&state, sizeof state, MADV_WIPEONFORK) == 0;  // Linux 4.14
  const bool opened = open_in_folder();
  state.folder = working_folder_mark();
  state.counters = state.writer.counters != nullptr ? state.writer.counters : &state.fallback;
  inherited.writer_of_parent.fd = -1;
  if (opened) {
    inherited.writer_of_parent.fd = state.writer.fd;
    inherited.writer_of_parent.device = state.writer.device;
    inherited.writer_of_parent.inode = state.writer.inode;
  }
  const int phase = !opened ? kOff : wiped ? kReady : kReadyUnlessForked;
  return change(state.phase, kOpening, phase) && opened ? &state : nullptr;
}

bool state_is_of_parent() { return inherited.pid != own_pid(); }

}  // namespace

uint32_t own_tid() { return static_cast<uint32_t>(syscall(SYS_gettid)); }

State* open_state() {
  if (load(state.phase) == kReadyUnlessForked && state_is_of_parent()) {
    madvise(&state, sizeof state, MADV_DONTNEED);
  }
  switch (load(state.phase)) {
    case kReady:
    case kReadyUnlessForked:
      return &state;
    case kOff:
      return nullptr;
    default:
      return change(state.phase, kClosed, kOpening) ? open_as_the_one() : wait_for_opener();
  }
}

char* claim_scratch(State& s) {
  for (int attempt = 0; attempt < 500; ++attempt) {
    uint64_t used = __atomic_load_n(&s.scratch_in_use, __ATOMIC_ACQUIRE);
    constexpr uint64_t kAll = (uint64_t{1} << kScratchBuffers) - 1;
    while (used != kAll) {
      const int free_one = __builtin_ctzll(~used);
      if (__atomic_compare_exchange_n(&s.scratch_in_use, &used, used | uint64_t{1} << free_one,
                                      false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        return s.scratch[free_one];
      }
    }
    pause_a_little();
  }
  count_loss(s, wire::kLossBusy);
  return nullptr;
}

void release_scratch(State& s, const char* buffer) {
  const auto place = static_cast<uint64_t>(buffer - s.scratch[0]) / sizeof s.scratch[0];
  __atomic_fetch_and(&s.scratch_in_use, ~(uint64_t{1} << place), __ATOMIC_ACQ_REL);
}

void count_loss(State& s, wire::LossReason reason) {
  __atomic_fetch_add(&s.counters->lost_by_reason[reason], 1, __ATOMIC_RELAXED);
}

bool within(State& s, uint32_t& counter, uint32_t limit) {
  if (__atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED) < limit) return true;
  __atomic_store_n(&counter, limit, __ATOMIC_RELAXED);
  count_loss(s, wire::kLossLimit);
  return false;
}

namespace {

void write_losses(State& s) {
  uint64_t total = 0;
  wire::LostPayload lost = {};
  for (uint32_t reason = 0; reason < wire::kLossReasons; ++reason) {
    lost.by_reason[reason] = __atomic_load_n(&s.counters->lost_by_reason[reason], __ATOMIC_RELAXED);
    total += lost.by_reason[reason];
  }
  uint64_t written = __atomic_load_n(&s.lost_written, __ATOMIC_RELAXED);
  if (total == written || !__atomic_compare_exchange_n(&s.lost_written, &written, total, false,
                                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    return;
  }
  alignas(8) char buffer[512];
  trace::RecordBuilder record(buffer, sizeof buffer, wire::kLost, own_tid(),
                              trace::clock_ns(CLOCK_MONOTONIC));
  record.payload(lost);
  record.finish();
  trace::append(s.writer, record);
}

}  // namespace

void write_record(State& s, const trace::RecordBuilder& record) {
  if (trace::append(s.writer, record)) {
    write_losses(s);
  } else {
    count_loss(s, wire::kLossWrite);
  }
}

// The only work at unloading, and none at loading. Events may follow: a thread that still runs
// while the process exits finds everything in place, and the file is opened again.
__attribute__((destructor)) static void note_exit() {
  const int phase = load(state.phase);
  if (phase != kReady && (phase != kReadyUnlessForked || state_is_of_parent())) return;
  const int saved = errno;
  look_for_unseen_contexts_at_exit();
  alignas(8) char buffer[512];
  trace::RecordBuilder record(buffer, sizeof buffer, wire::kExit, own_tid(),
                              trace::clock_ns(CLOCK_MONOTONIC));
  record.payload(wire::ExitPayload{.reserved = 0});
  record.finish();
  write_record(state, record);
  trace::close_descriptor(state.writer);
  errno = saved;
}

}  // namespace corral::shim

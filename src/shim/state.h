// SPDX-License-Identifier: Apache-2.0
// All that the shim knows about its process, in one piece of zero memory that a child of fork gets
// emptied by the kernel.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "shim/pointer_table.h"
#include "trace/writer.h"

namespace corral::shim {

// Pages of arm64 may have 64 KiB.
constexpr size_t kPageBytes = 65536;
constexpr size_t kScratchBuffers = 32;
constexpr size_t kKeptVariables = 7;
constexpr size_t kVisibleBytes = 1023;
constexpr size_t kRankBytes = 128;

// kReadyUnlessForked: the kernel cannot empty memory at fork, so every entry asks who we are.
enum StatePhase : int { kClosed, kOpening, kReady, kReadyUnlessForked, kOff };
enum InitPhase : int { kNoInit, kInInit, kInitDone };
enum DevicePhase : int { kDeviceUnknown, kDeviceWriting, kDeviceKnown };

// A want of memory on a device that is not over yet: one a device at a time, that of one thread.
// Whoever moves `owner` to kShortageTaken has the rest for itself until it moves it on.
struct Shortage {
  int owner;          // 0: none; kShortageTaken; the thread whose it is
  int patience;       // allocations of other threads until it is forgotten
  uint32_t failures;  // one after the other
  uint64_t bytes;     // asked for each time
  uint64_t held;      // at the first
};
constexpr int kShortageTaken = -1;

struct Device {
  int phase;         // DevicePhase
  uint64_t primary;  // its primary context, which was recorded and has not ended; 0: none
  int shared_seen;   // memory of others on it was recorded
  int managed_seen;  // managed memory on it was recorded
  int graph_seen;    // a graph's node for it was recorded
  Shortage shortage;
  wire::DeviceId id;
};

struct KeptVariable {
  bool set;
  bool cut;
  uint32_t bytes;  // of its value
};

struct alignas(kPageBytes) State {
  int phase;       // StatePhase
  int opener_tid;  // while kOpening
  int init_phase;  // InitPhase
  uint32_t init_failures;
  uint32_t context_failures;
  uint32_t no_such_devices;  // records of numbers that no device has
  uint32_t allocation_events;
  uint32_t shortage_events;
  uint64_t scratch_in_use;            // a bit for each buffer
  uint64_t lost_written;              // total of losses when the last kLost record was written
  KeptVariable kept[kKeptVariables];  // at cuInit
  char visible[kVisibleBytes];        // value of the first of them, CUDA_VISIBLE_DEVICES
  char ranks[kKeptVariables - 1][kRankBytes];  // of the others
  uint64_t environment;  // mark of the environment when `kept` was last seen to hold; 0: never
  uint64_t folder;       // mark of the working folder when the trace was opened
  trace::Writer writer;
  wire::CountersFile* counters;  // the file's, or `fallback`
  wire::CountersFile fallback;
  Device devices[wire::kMaxDevices];
  int unknown_shared_seen;  // as shared_seen, for all devices that are not known
  int device_count;         // 0: not asked yet
  uint32_t making;          // calls that are making a context just now
  uint32_t retains_begun;   // of those that may activate a primary context
  uint64_t modules[1024];   // keys of modules whose record was written; the id is the place
  PointerTable<1024, place_of_handle> contexts;  // context → device and flags
  PointerTable<1024, place_of_handle> pools;     // pool → device
  alignas(4096) char scratch[kScratchBuffers][wire::kMaxRecordBytes];
  PointerTable<1U << 18, place_of_address> addresses;  // address → bytes and device
  PointerTable<1U << 18, place_of_handle> handles;     // of cuMemCreate and arrays → the same
};

extern State state_of_process;  // in .bss: costs nothing until it is used

State* open_state();

// The state of this process, opened when it was not; null: nothing is recorded.
inline State* ready_state() {
  if (__builtin_expect(__atomic_load_n(&state_of_process.phase, __ATOMIC_ACQUIRE) == kReady, 1)) {
    return &state_of_process;
  }
  return open_state();
}

// A buffer of wire::kMaxRecordBytes; null: all were in use for too long.
char* claim_scratch(State& state);
void release_scratch(State& state, const char* buffer);

void count_loss(State& state, wire::LossReason reason);
// Counts one more; false when there are `limit` already: then the loss is counted instead.
bool within(State& state, uint32_t& counter, uint32_t limit);
// Appends a finished record; a failure is counted.
void write_record(State& state, const trace::RecordBuilder& record);

uint32_t own_tid();

}  // namespace corral::shim

// SPDX-License-Identifier: Apache-2.0
// The inside of the simulated libcuda.so.1. The exported functions live in libcuda*.cc.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "fault.h"
#include "state.h"
#include "visible.h"

#define SIM_EXPORT extern "C" __attribute__((visibility("default")))

namespace corral::sim {

// CUresult values, as the CUDA driver API documents them.
enum Cuda : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kOperatingSystem = 304,
  kInvalidHandle = 400,
  kNotFound = 500,
  kContextDestroyed = 709,
  kNotSupported = 801,
  kUnknown = 999,
};

using DevicePointer = unsigned long long;

struct Context {
  int device;  // ordinal among the visible devices
  bool primary;
  bool alive;
  unsigned flags;
  unsigned long long id;
  Context* next;  // all contexts ever made; the dead ones are used again
};

struct Allocation {
  enum class Kind { device, managed, handle, stream };
  DevicePointer address;  // 0: free entry of the table
  std::uint64_t bytes;
  Context* context;  // nullptr for a handle: it belongs to the process
  int device;
  Kind kind;
};

// All that the library knows about its process. There is one, as in the real driver.
struct Driver {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  std::atomic<int> status{kNotInitialized};  // what cuInit ended with
  std::atomic<bool> tried{false};
  std::atomic<bool> forked{false};  // a child of the process that called cuInit
  bool fast = false;
  Machine machine;
  Faults faults;
  VisibleList devices;

  Context* contexts = nullptr;
  unsigned long long next_context_id = 1;
  struct Primary {
    Context* context;
    unsigned references;
    unsigned flags;
  } primary[kMaxGpus] = {};

  Allocation* table = nullptr;  // open addressing, a power of two
  std::size_t table_size = 0;
  std::size_t table_used = 0;  // with the removed ones
  DevicePointer next_address = 0x100000000000;
};

Driver& driver();

class Locked {
 public:
  Locked() { pthread_mutex_lock(&driver().mutex); }
  ~Locked() { pthread_mutex_unlock(&driver().mutex); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
};

// kSuccess when `function` may go on; the injected fault or "not initialised" otherwise.
int enter(const char* function, int device = -1);
bool valid_device(int device);
// The GPU behind a visible device.
const Gpu& gpu_of(int device);
unsigned gpu_index(int device);
std::uint64_t memory_total(int device);
std::uint64_t memory_used(int device);

// The calling thread's current context; kInvalidContext without one, kContextDestroyed for a dead
// one.
int current_context(Context** context);

// Under the mutex: a context's place on its GPU, and its end with all that was allocated in it.
int make_context(int device, bool primary, unsigned flags, Context** context);
void end_context(Context* context);
void forget_allocations(const Context* context);
// Makes the primary context without counting a reference, as no exported function does.
int activate_primary(int device);
// What cuGetExportTable gives for kPrivateTableId.
struct PrivateTable {
  std::size_t bytes;
  int (*activate_primary)(int device);
};
inline constexpr unsigned char kPrivateTableId[16] = {'c', 'o', 'r', 'r', 'a', 'l', '-', 's',
                                                      'i', 'm', '-', 't', 'a', 'b', 'l', 'e'};
// Waits as long as the real driver takes, unless CORRAL_SIM_FAST=1.
void take_time(unsigned milliseconds);

}  // namespace corral::sim

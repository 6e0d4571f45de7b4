// SPDX-License-Identifier: Apache-2.0
// The inside of the simulated libnvidia-ml.so.1. The exported functions live in libnvidia_ml*.cc.
#pragma once

#include <pthread.h>

#include <atomic>

#include "fault.h"
#include "state.h"

#define SIM_EXPORT extern "C" __attribute__((visibility("default")))

namespace corral::sim {

// nvmlReturn_t values, as the NVML reference numbers them.
enum Nvml : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNoPermission = 4,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kVersionMismatch = 25,
};

constexpr unsigned kNotAvailable = ~0U;

// What a nvmlDevice_t points to: a GPU, or a MIG instance of it.
struct Device {
  unsigned gpu;
  int mig;  // -1: the GPU
};

// All that the library knows about its process.
struct Library {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  std::atomic<int> started{0};  // nvmlInit calls without their nvmlShutdown
  Machine machine;
  Faults faults;
  bool faults_read = false;
  bool node_kept_open[kMaxGpus] = {};
  // The GPUs whose nodes opened at the first nvmlInit, in bus order: nvmlDevice numbers.
  unsigned shown[kMaxGpus] = {};
  unsigned shown_count = 0;
  Device device[kMaxGpus * (1 + kMaxMig)] = {};
};

Library& library();

inline State& state() { return *library().machine.state(); }
inline const Gpu& gpu_of(const Device* device) { return state().gpus[device->gpu]; }

// kSuccess when `function` may go on; an injected fault, or what is wrong with the library's state
// or the handle, otherwise. enter_gpu: for what only a whole GPU has.
int enter(const char* function);
int enter(const char* function, const Device* device);
int enter_gpu(const char* function, const Device* device);

inline int put(unsigned value, unsigned* out) {
  if (out == nullptr) return kInvalidArgument;
  *out = value;
  return kSuccess;
}

}  // namespace corral::sim

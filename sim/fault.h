// SPDX-License-Identifier: Apache-2.0
// Errors on demand: "nvmlDeviceGetMemoryInfo=15,nvmlDeviceGetHandleByIndex_v2#0=4@3".
#pragma once

#include <atomic>

namespace corral::sim {

// The faults that one environment variable asks for: function[#gpu]=code[@calls that still work].
// Entries that cannot be read are ignored; at most kMax are kept.
class Faults {
 public:
  void read(const char* variable);

  // The code that `function` on `gpu` (-1: on none) must return now, or 0.
  int code(const char* function, int gpu) { return count_ == 0 ? 0 : search(function, gpu); }

 private:
  static constexpr int kMax = 32;
  struct Fault {
    char function[80];
    int gpu;  // -1: any
    int code;
    std::atomic<int> calls_left;
  };
  int search(const char* function, int gpu);

  int count_ = 0;
  Fault faults_[kMax] = {};
};

}  // namespace corral::sim

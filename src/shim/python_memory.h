// SPDX-License-Identifier: Apache-2.0
// Two ways to read the interpreter's memory, of one form, so that what reads is written once.
//
// Directly: tens of nanoseconds a frame; for memory that stands still and is what it is taken for.
// ThroughKernel: a wrong address is an error and not a crash; for layouts that were not tested, and
// for memory that another thread may change or free meanwhile.
#pragma once

#include <stdint.h>
#include <string.h>

#include "shim/safe_read.h"

namespace corral::shim {

struct Directly {
  static bool read(void* to, const char* from, size_t bytes) {
    if (reinterpret_cast<uintptr_t>(from) < 4096) return false;
    memcpy(to, from, bytes);
    return true;
  }

  class Object {
   public:
    Object(const Directly&, const char* at) : at_(at) {}
    const char* at() const { return at_; }
    bool read(void* to, size_t offset, size_t bytes) const {
      return reinterpret_cast<uintptr_t>(at_) >= 4096 && Directly::read(to, at_ + offset, bytes);
    }

   private:
    const char* at_;
  };
};

class ThroughKernel {
 public:
  explicit ThroughKernel(long pid) : pid_(pid) {}

  bool read(void* to, const char* from, size_t bytes) const {
    return reinterpret_cast<uintptr_t>(from) >= 4096 && safe_read(to, from, bytes, pid_) == bytes;
  }

  // One call to the kernel gets all that is usually asked of an object.
  class Object {
   public:
    Object(const ThroughKernel& memory, const char* at)
        : memory_(memory),
          at_(at),
          got_(reinterpret_cast<uintptr_t>(at) < 4096
                   ? 0
                   : safe_read(bytes_, at, sizeof bytes_, memory.pid_)) {}
    const char* at() const { return at_; }
    bool read(void* to, size_t offset, size_t bytes) const {
      if (got_ == 0) return false;
      if (offset > got_ || bytes > got_ - offset) return memory_.read(to, at_ + offset, bytes);
      memcpy(to, bytes_ + offset, bytes);
      return true;
    }

   private:
    const ThroughKernel& memory_;
    const char* at_;
    char bytes_[256];
    size_t got_;
  };

 private:
  long pid_;  // of this process
};

template <class Object, class T>
bool get(T& value, const Object& object, uint32_t offset) {
  return object.read(&value, offset, sizeof value);
}

}  // namespace corral::shim

// SPDX-License-Identifier: Apache-2.0
// A fixed table from a pointer of the driver to what is known of it, without locks.
//
// A key is put in after the driver has handed it out and taken out before it is given back, so one
// key is never in the table twice and no two threads work on the same key. That is what makes one
// compare-and-swap to put it in and one store to take it out enough. A removed entry becomes empty;
// look-ups therefore do not stop at an empty entry but at the end of a bounded run, which costs
// only keys that are not there.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace corral::shim {

// Numbers of which nothing is known, as handles are: a multiplication spreads them.
inline size_t place_of_handle(uint64_t key) {
  return static_cast<size_t>((key * 0x9E3779B97F4A7C15ULL) >> 32);
}

// Device addresses are multiples of 256 bytes, and often follow each other at 512 bytes or at 2
// MiB: neighbours share a cache line, and no usual distance makes two addresses meet.
inline size_t place_of_address(uint64_t key) {
  return static_cast<size_t>((key >> 8) + (key >> 21));
}

// All zero: empty. `kEntries` is a power of two; `kPlace` tells where a key belongs.
template <size_t kEntries, size_t (*kPlace)(uint64_t)>
class PointerTable {
 public:
  // False: no room near the key's place.
  bool insert(uint64_t key, uint64_t value) {
    const size_t home = kPlace(key);
    for (size_t i = 0; i < kRun; ++i) {
      Entry& entry = entries_[(home + i) & (kEntries - 1)];
      uint64_t empty = 0;
      if (__atomic_load_n(&entry.key, __ATOMIC_RELAXED) == 0 &&
          __atomic_compare_exchange_n(&entry.key, &empty, key, false, __ATOMIC_ACQ_REL,
                                      __ATOMIC_RELAXED)) {
        __atomic_store_n(&entry.value, value, __ATOMIC_RELEASE);
        return true;
      }
    }
    return false;
  }

  // Removes the key; false when it is not there.
  bool take(uint64_t key, uint64_t& value) {
    const size_t home = kPlace(key);
    for (size_t i = 0; i < kRun; ++i) {
      Entry& entry = entries_[(home + i) & (kEntries - 1)];
      if (__atomic_load_n(&entry.key, __ATOMIC_ACQUIRE) != key) continue;
      value = __atomic_load_n(&entry.value, __ATOMIC_ACQUIRE);
      __atomic_store_n(&entry.key, uint64_t{0}, __ATOMIC_RELEASE);
      return true;
    }
    return false;
  }

  bool find(uint64_t key, uint64_t& value) const {
    const size_t home = kPlace(key);
    for (size_t i = 0; i < kRun; ++i) {
      const Entry& entry = entries_[(home + i) & (kEntries - 1)];
      if (__atomic_load_n(&entry.key, __ATOMIC_ACQUIRE) != key) continue;
      value = __atomic_load_n(&entry.value, __ATOMIC_ACQUIRE);
      return true;
    }
    return false;
  }

 private:
  struct Entry {
    uint64_t key;  // 0: empty
    uint64_t value;
  };
  static constexpr size_t kRun = 64;
  Entry entries_[kEntries];
};

}  // namespace corral::shim

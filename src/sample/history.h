// SPDX-License-Identifier: Apache-2.0
// The samples of one GPU in bounded memory: when a run is long the resolution is halved, and
// minimum, maximum and mean of every stretch stay exact.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "snapshot/run.h"

namespace corral::sample {

struct Reading {
  std::int64_t time_ns = 0;  // monotonic
  std::optional<std::uint64_t> memory_used_bytes;
  std::optional<double> power_w;
  std::optional<unsigned> sm_clock_mhz;
};

class History {
 public:
  // At most `limit` stretches are kept, at least 4.
  explicit History(std::size_t limit);

  // Readings in order of time.
  void add(const Reading& reading);

  // In order of time, in seconds after `start_ns`. A stretch of one reading is one sample; a longer
  // one is three of the same moment: minimum, maximum, and the mean, which holds until the next
  // (see sample/summary). The very first reading, the one from before the job, is never merged. A
  // stretch that goes over the start is put at it.
  std::vector<snapshot::Sample> samples(std::int64_t start_ns) const;

 private:
  template <class Value>
  struct Extremes {
    std::optional<Value> min;
    std::optional<Value> max;
    double sum = 0;
    unsigned count = 0;

    void add(const std::optional<Value>& value);
    void merge(const Extremes& other);
    std::optional<Value> mean() const;
  };
  struct Stretch {
    std::int64_t first_ns = 0;
    std::int64_t last_ns = 0;
    unsigned readings = 0;
    Extremes<std::uint64_t> memory_used_bytes;
    Extremes<double> power_w;
    Extremes<unsigned> sm_clock_mhz;

    void add(const Reading& reading);
    void merge(const Stretch& other);
  };

  void halve();

  std::size_t limit_;
  unsigned readings_per_stretch_ = 1;
  std::vector<Stretch> stretches_;
};

}  // namespace corral::sample

// SPDX-License-Identifier: Apache-2.0
// Keeping and merging readings.
#include "sample/history.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>

namespace corral::sample {

template <class Value>
void History::Extremes<Value>::add(const std::optional<Value>& value) {
  if (!value) return;
  min = std::min(min.value_or(*value), *value);
  max = std::max(max.value_or(*value), *value);
  sum += static_cast<double>(*value);
  ++count;
}

template <class Value>
void History::Extremes<Value>::merge(const Extremes& other) {
  if (other.count == 0) return;
  min = std::min(min.value_or(*other.min), *other.min);
  max = std::max(max.value_or(*other.max), *other.max);
  sum += other.sum;
  count += other.count;
}

template <class Value>
std::optional<Value> History::Extremes<Value>::mean() const {
  if (count == 0) return std::nullopt;
  const double mean = sum / count;
  if constexpr (std::floating_point<Value>) {
    return mean;
  } else {
    return static_cast<Value>(std::llround(mean));
  }
}

void History::Stretch::add(const Reading& reading) {
  if (readings == 0) first_ns = reading.time_ns;
  last_ns = reading.time_ns;
  ++readings;
  memory_used_bytes.add(reading.memory_used_bytes);
  power_w.add(reading.power_w);
  sm_clock_mhz.add(reading.sm_clock_mhz);
}

void History::Stretch::merge(const Stretch& other) {
  last_ns = other.last_ns;
  readings += other.readings;
  memory_used_bytes.merge(other.memory_used_bytes);
  power_w.merge(other.power_w);
  sm_clock_mhz.merge(other.sm_clock_mhz);
}

History::History(std::size_t limit) : limit_(std::max<std::size_t>(limit, 4)) {}

void History::add(const Reading& reading) {
  const bool open = stretches_.size() > 1 && stretches_.back().readings < readings_per_stretch_;
  if (!open) {
    if (stretches_.size() == limit_) halve();
    stretches_.emplace_back();
  }
  stretches_.back().add(reading);
}

void History::halve() {
  readings_per_stretch_ *= 2;
  std::size_t kept = 1;
  for (std::size_t i = 1; i < stretches_.size(); i += 2) {
    stretches_[kept] = stretches_[i];
    if (i + 1 < stretches_.size()) stretches_[kept].merge(stretches_[i + 1]);
    ++kept;
  }
  stretches_.resize(kept);
}

std::vector<snapshot::Sample> History::samples(std::int64_t start_ns) const {
  std::vector<snapshot::Sample> out;
  for (const Stretch& stretch : stretches_) {
    constexpr double kSecondsPerNs = 1e-9;
    const bool over_start = stretch.first_ns < start_ns && stretch.last_ns >= start_ns;
    const double time_s =
        over_start ? 0 : static_cast<double>(stretch.first_ns - start_ns) * kSecondsPerNs;
    if (stretch.readings > 1) {
      out.push_back(
          {time_s, stretch.memory_used_bytes.min, stretch.power_w.min, stretch.sm_clock_mhz.min});
      out.push_back(
          {time_s, stretch.memory_used_bytes.max, stretch.power_w.max, stretch.sm_clock_mhz.max});
    }
    out.push_back({time_s, stretch.memory_used_bytes.mean(), stretch.power_w.mean(),
                   stretch.sm_clock_mhz.mean()});
  }
  return out;
}

}  // namespace corral::sample

// SPDX-License-Identifier: Apache-2.0
// Summing samples up.
#include "sample/summary.h"

#include <algorithm>

namespace corral::sample {
namespace {

template <class Value>
std::optional<Range<Value>> range_of(const std::vector<snapshot::Sample>& samples, double from_s,
                                     double to_s, std::optional<Value> snapshot::Sample::* member) {
  std::optional<Range<Value>> out;
  bool holding = false;  // a reading was made at `since_s` and counts until the next
  double since_s = 0;
  double last = 0;
  double integral = 0;
  double seconds = 0;
  double sum = 0;
  double count = 0;
  const auto hold_until = [&](double time_s) {
    if (!holding) return;
    integral += last * (time_s - since_s);
    seconds += time_s - since_s;
  };
  for (const snapshot::Sample& sample : samples) {
    if (sample.time_s < from_s || sample.time_s > to_s) continue;
    const std::optional<Value>& value = sample.*member;
    hold_until(sample.time_s);
    holding = value.has_value();
    if (!value) continue;  // unknown from here on, and not what it was before
    since_s = sample.time_s;
    last = static_cast<double>(*value);
    sum += last;
    count += 1;
    if (!out) out = Range<Value>{*value, *value, 0};
    out->min = std::min(out->min, *value);
    out->max = std::max(out->max, *value);
  }
  if (!out) return out;
  hold_until(to_s);
  out->mean = seconds > 0 ? integral / seconds : sum / count;
  return out;
}

}  // namespace

Summary summarize(const std::vector<snapshot::Sample>& samples, double from_s, double to_s) {
  return {range_of(samples, from_s, to_s, &snapshot::Sample::memory_used_bytes),
          range_of(samples, from_s, to_s, &snapshot::Sample::power_w),
          range_of(samples, from_s, to_s, &snapshot::Sample::sm_clock_mhz)};
}

}  // namespace corral::sample

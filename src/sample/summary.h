// SPDX-License-Identifier: Apache-2.0
// Minimum, maximum and mean of samples.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "snapshot/run.h"

namespace corral::sample {

template <class Value>
struct Range {
  Value min{};
  Value max{};
  // Each reading counts for the time until the next one: samples need not be evenly spaced, and
  // readings of one moment (how a merged stretch is handed over) do not count more than one.
  double mean = 0;
};

struct Summary {
  std::optional<Range<std::uint64_t>> memory_used_bytes;
  std::optional<Range<double>> power_w;
  std::optional<Range<unsigned>> sm_clock_mhz;
};

// Of the samples with from_s <= time_s <= to_s, which are in order of time. A value that no sample
// in it has is nullopt: a job shorter than the sampling interval has no summary. For the time
// before the job: from minus infinity to 0.
Summary summarize(const std::vector<snapshot::Sample>& samples, double from_s, double to_s);

}  // namespace corral::sample

// SPDX-License-Identifier: Apache-2.0
// Bounded histories and their summaries.
#include "sample/history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "sample/summary.h"

namespace corral::sample {
namespace {

constexpr std::int64_t kTick = 100'000'000;
constexpr double kForever = std::numeric_limits<double>::infinity();

Reading reading(std::int64_t time_ns, std::uint64_t memory, double power = 80,
                unsigned clock = 345) {
  return {time_ns, memory, power, clock};
}

snapshot::Sample sample(double time_s, std::optional<std::uint64_t> memory) {
  snapshot::Sample out;
  out.time_s = time_s;
  out.memory_used_bytes = memory;
  return out;
}

TEST(history, short_runs_are_handed_over_as_they_were_read) {
  History history(100);
  history.add(reading(-kTick, 1));
  history.add(reading(0, 2));
  history.add(reading(kTick, 3));
  const auto samples = history.samples(0);
  ASSERT_EQ(samples.size(), 3U);
  EXPECT_DOUBLE_EQ(samples[0].time_s, -0.1);
  EXPECT_EQ(samples[0].memory_used_bytes, 1U);
  EXPECT_DOUBLE_EQ(samples[2].time_s, 0.1);
  EXPECT_EQ(samples[2].sm_clock_mhz, 345U);
}

TEST(history, long_runs_keep_extremes_mean_and_order_in_bounded_memory) {
  constexpr int kReadings = 10000;
  constexpr std::size_t kLimit = 64;
  History history(kLimit);
  double power_sum = 0;
  for (int i = 0; i < kReadings; ++i) {
    const double power = 100 + i % 7;
    power_sum += power;
    const std::uint64_t memory = i == 777 ? 5000 : i == 4242 ? 1 : 1000;
    history.add(reading(i * kTick, memory, i == 9000 ? 700 : power, i == 1 ? 1980 : 345));
    if (i == 9000) power_sum += 700 - power;
    ASSERT_LE(history.samples(0).size(), 3 * kLimit);
  }
  const auto samples = history.samples(0);
  EXPECT_TRUE(std::ranges::is_sorted(samples, {}, &snapshot::Sample::time_s));
  const Summary summary = summarize(samples, 0, kReadings * 0.1);
  EXPECT_EQ(summary.memory_used_bytes->max, 5000U);
  EXPECT_EQ(summary.memory_used_bytes->min, 1U);
  EXPECT_DOUBLE_EQ(summary.power_w->max, 700);
  EXPECT_DOUBLE_EQ(summary.power_w->min, 100);
  EXPECT_EQ(summary.sm_clock_mhz->max, 1980U);
  EXPECT_NEAR(summary.power_w->mean, power_sum / kReadings, 0.01);
}

TEST(history, the_reading_from_before_the_job_is_never_merged) {
  History history(4);
  history.add(reading(-kTick, 7));
  for (int i = 0; i < 1000; ++i) history.add(reading(i * kTick, 1000));
  const auto samples = history.samples(0);
  EXPECT_DOUBLE_EQ(samples[0].time_s, -0.1);
  EXPECT_EQ(samples[0].memory_used_bytes, 7U);
  EXPECT_EQ(samples[1].memory_used_bytes, 1000U);
  EXPECT_EQ(summarize(samples, -kForever, -1e-9).memory_used_bytes->max, 7U);
}

TEST(history, a_stretch_over_the_start_is_put_at_it) {
  History history(4);
  for (int i = 0; i < 64; ++i) history.add(reading(i * kTick, 1));
  const auto samples = history.samples(10 * kTick + 1);
  EXPECT_TRUE(std::ranges::any_of(samples, [](const auto& one) { return one.time_s == 0; }));
  EXPECT_TRUE(std::ranges::is_sorted(samples, {}, &snapshot::Sample::time_s));
}

TEST(history, values_never_read_stay_unknown) {
  History history(4);
  for (int i = 0; i < 100; ++i) history.add({i * kTick, {}, 80.0, {}});
  for (const auto& one : history.samples(0)) {
    EXPECT_EQ(one.memory_used_bytes, std::nullopt);
    EXPECT_EQ(one.power_w, 80.0);
  }
}

TEST(summary, of_nothing_is_unknown_and_not_zero) {
  EXPECT_FALSE(summarize({}, 0, 10).memory_used_bytes);
  EXPECT_FALSE(summarize({sample(-1, 5), sample(11, 5)}, 0, 10).memory_used_bytes)
      << "no reading during the job";
  EXPECT_FALSE(summarize({sample(1, std::nullopt)}, 0, 10).memory_used_bytes);
}

TEST(summary, counts_each_reading_until_the_next) {
  const auto range =
      summarize({sample(-5, 900), sample(0, 100), sample(1, 200)}, 0, 10).memory_used_bytes;
  EXPECT_EQ(range->min, 100U);
  EXPECT_EQ(range->max, 200U);
  EXPECT_DOUBLE_EQ(range->mean, (100 * 1 + 200 * 9) / 10.0);
}

TEST(summary, readings_of_one_moment_set_extremes_and_only_the_last_is_held) {
  const auto range =
      summarize({sample(0, 1), sample(0, 1000), sample(0, 10)}, 0, 10).memory_used_bytes;
  EXPECT_EQ(range->min, 1U);
  EXPECT_EQ(range->max, 1000U);
  EXPECT_DOUBLE_EQ(range->mean, 10);
}

TEST(summary, a_gap_counts_for_nothing) {
  const auto range =
      summarize({sample(0, 100), sample(1, std::nullopt), sample(9, 200)}, 0, 10).memory_used_bytes;
  EXPECT_DOUBLE_EQ(range->mean, 150);
}

TEST(summary, a_single_reading_at_the_end_is_its_own_mean) {
  EXPECT_DOUBLE_EQ(summarize({sample(10, 7)}, 0, 10).memory_used_bytes->mean, 7);
}

}  // namespace
}  // namespace corral::sample

// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <fmt/format.h>

#include <ctime>

namespace corral {
namespace {

constexpr std::int64_t kNsPerSecond = 1'000'000'000;

std::int64_t now_ns(clockid_t id) {
  timespec t{};
  ::clock_gettime(id, &t);
  return t.tv_sec * kNsPerSecond + t.tv_nsec;
}

}  // namespace

std::int64_t monotonic_ns() { return now_ns(CLOCK_MONOTONIC); }
std::int64_t realtime_ns() { return now_ns(CLOCK_REALTIME); }

std::string rfc3339(std::int64_t realtime_ns) {
  const std::time_t seconds = realtime_ns / kNsPerSecond;
  std::tm t{};
  ::gmtime_r(&seconds, &t);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", t.tm_year + 1900, t.tm_mon + 1,
                     t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec,
                     realtime_ns % kNsPerSecond / 1'000'000);
}

}  // namespace corral

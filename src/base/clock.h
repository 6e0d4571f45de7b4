// SPDX-License-Identifier: Apache-2.0
// The two clocks. Durations and orders use the monotonic one; only what a person reads uses the
// other.
#pragma once

#include <cstdint>
#include <string>

namespace corral {

std::int64_t monotonic_ns();
std::int64_t realtime_ns();

// RFC 3339 in UTC with milliseconds: "2026-11-30T06:52:19.123Z".
std::string rfc3339(std::int64_t realtime_ns);

}  // namespace corral

// SPDX-License-Identifier: Apache-2.0
// Any bytes as a trace and as a counters file: an error or a result, never a crash or a hang, and
// what is kept is bounded by what came in.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "trace/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const char*>(data), size);
  if (const auto trace = corral::trace::parse_trace(bytes, "fuzz")) {
    const std::size_t events =
        trace->inits.size() + trace->contexts.size() + trace->allocations.size();
    if (events * sizeof(corral::wire::RecordHeader) > size) std::abort();
    (void)trace->records_lost();
    for (const auto& context : trace->contexts) (void)context.device.uuid_text();
  }
  if (const auto counters = corral::trace::parse_counters(bytes, "fuzz")) {
    if (counters->devices.size() * sizeof(std::uint64_t) > size) std::abort();
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Traces in memory, made record by record.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "trace/writer.h"

namespace corral::trace {

inline wire::DeviceId device_id(int ordinal, std::uint8_t uuid_byte) {
  wire::DeviceId id{};
  id.ordinal = ordinal;
  id.flags = wire::kDeviceUuid | wire::kDevicePci;
  std::memset(id.uuid, uuid_byte, sizeof id.uuid);
  std::snprintf(id.pci, sizeof id.pci, "0000:00:%02d.0", static_cast<std::uint8_t>(6 + ordinal));
  return id;
}

class TraceBytes {
 public:
  explicit TraceBytes(std::uint32_t pid = 4711, const std::string& exe = "/usr/bin/python3.12",
                      const std::string& argv = std::string("python3\0train.py\0", 17)) {
    const std::string cwd = "/home/user";
    wire::FileHeader header{};
    std::memcpy(header.magic, wire::kTraceMagic, sizeof header.magic);
    header.version = wire::kVersion;
    const std::size_t strings = exe.size() + argv.size() + cwd.size();
    header.header_bytes = wire::align_up(static_cast<std::uint32_t>(sizeof header + strings));
    header.start_time_ticks = 5000;
    header.pid_namespace = 4026531836;
    header.opened_monotonic_ns = 50'000'000'000;
    header.opened_realtime_ns = 1'796'000'000'000'000'000;
    header.pid = pid;
    header.parent_pid = 4700;
    header.ticks_per_second = 100;
    header.exe_bytes = static_cast<std::uint16_t>(exe.size());
    header.argv_bytes = static_cast<std::uint16_t>(argv.size());
    header.cwd_bytes = static_cast<std::uint16_t>(cwd.size());
    bytes.assign(reinterpret_cast<const char*>(&header), sizeof header);
    bytes += exe + argv + cwd;
    bytes.resize(header.header_bytes);
  }

  // Adds a record; `fill` puts its payload and fields in.
  TraceBytes& add(wire::Kind kind, const std::function<void(RecordBuilder&)>& fill,
                  std::int64_t monotonic_ns = 51'000'000'000, std::uint32_t tid = 4711) {
    std::vector<std::uint64_t> buffer(wire::kMaxRecordBytes / sizeof(std::uint64_t));
    RecordBuilder record(reinterpret_cast<char*>(buffer.data()), wire::kMaxRecordBytes, kind, tid,
                         monotonic_ns);
    fill(record);
    record.finish();
    bytes.append(record.data(), record.size());
    return *this;
  }

  TraceBytes& init(const std::vector<std::string>& variables, int result = 0) {
    return add(wire::kInit, [&](RecordBuilder& record) {
      record.payload(wire::InitPayload{.result = result, .flags = 0});
      for (const std::string& variable : variables)
        record.text(wire::kVariable, variable.data(), variable.size());
    });
  }

  struct ContextOptions {
    int result = 0;
    std::uint32_t flags = wire::kContextPrimary;
    std::int64_t monotonic_ns = 52'000'000'000;
    std::uint32_t tid = 4711;
  };
  TraceBytes& context(wire::Kind kind, const wire::DeviceId& device, std::uint64_t handle,
                      const std::function<void(RecordBuilder&)>& more, ContextOptions options) {
    return add(
        kind,
        [&](RecordBuilder& record) {
          record.payload(wire::ContextPayload{.device = device,
                                              .context = handle,
                                              .result = options.result,
                                              .flags = options.flags});
          const std::string function = kind == wire::kContextMade ? "cuDevicePrimaryCtxRetain"
                                                                  : "cuDevicePrimaryCtxRelease_v2";
          record.text(wire::kFunction, function.data(), function.size());
          record.text(wire::kThreadName, "python3", 7);
          more(record);
        },
        options.monotonic_ns, options.tid);
  }
  TraceBytes& context(wire::Kind kind, const wire::DeviceId& device, std::uint64_t handle) {
    return context(kind, device, handle, [](RecordBuilder&) {}, ContextOptions{});
  }

  std::string bytes;
};

inline void python_frame(RecordBuilder& record, unsigned line, const std::string& file,
                         const std::string& function) {
  record.python_frame(wire::kPythonFrame, line, file.data(), file.size(), function.data(),
                      function.size());
}

// One of everything that version 1 has. Its bytes are kept in tests/fixtures/traces/ for ever.
inline TraceBytes one_of_everything() {
  TraceBytes trace;
  trace.init({"CUDA_VISIBLE_DEVICES=1", "CUDA_DEVICE_ORDER", "LOCAL_RANK=0", "RANK=3"});
  trace.add(wire::kModule, [](RecordBuilder& record) {
    record.payload(wire::ModulePayload{.id = 7, .flags = 0, .load_base = 0x7f0000000000});
    record.text(wire::kPath, "/usr/lib/libtorch_cuda.so", 25);
  });
  const auto stack = [](RecordBuilder& record) {
    record.text(wire::kVariable, "CUDA_VISIBLE_DEVICES=0", 22);
    record.text(wire::kPythonSource, "walker 3.12", 11);
    python_frame(record, 1161, "/venv/lib/python3.12/site-packages/torch/cuda/__init__.py",
                 "synchronize");
    record.python_omitted(wire::kPythonOmitted, 3);
    python_frame(record, 0, "ünï/模型.py", "trainiere_模");
    const wire::NativeFrameData frames[] = {
        {.offset = 0x1234, .module = 7, .reserved = 0},
        {.offset = 0x7fff0000, .module = wire::kNoModule, .reserved = 0}};
    record.native_frames(frames, 2);
  };
  trace.context(wire::kContextMade, device_id(0, 0xAB), 0xC0FFEE, stack, {});
  trace.add(wire::kAllocation, [](RecordBuilder& record) {
    record.payload(
        wire::AllocationPayload{.device = device_id(1, 0xCD),
                                .bytes = 128ULL << 20,
                                .result = 0,
                                .flags = wire::kAllocationFirst | wire::kAllocationLarge});
    record.text(wire::kFunction, "cuMemAlloc_v2", 13);
  });
  trace.context(wire::kContextEnded, device_id(0, 0xAB), 0xC0FFEE, [](RecordBuilder&) {},
                {.monotonic_ns = 53'000'000'000});
  trace.add(wire::kLost, [](RecordBuilder& record) {
    record.payload(wire::LostPayload{.by_reason = {1, 2, 3, 0}});
  });
  trace.add(
      wire::kExit, [](RecordBuilder& record) { record.payload(wire::ExitPayload{.reserved = 0}); },
      54'000'000'000);
  return trace;
}

inline std::string one_counters_file() {
  wire::CountersFile file{};
  std::memcpy(file.magic, wire::kCountersMagic, sizeof file.magic);
  file.version = wire::kVersion;
  file.header_bytes = offsetof(wire::CountersFile, devices);
  file.device_bytes = sizeof(wire::DeviceCounters);
  file.device_count = wire::kMaxDevices;
  file.start_time_ticks = 5000;
  file.pid = 4711;
  file.lost_by_reason[1] = 5;
  file.unknown_device = 6;
  file.foreign_frees = 7;
  file.devices[1].device = device_id(1, 0xCD);
  file.devices[1].device.flags |= wire::kDeviceInUse;
  file.devices[1].bytes_now = 10;
  file.devices[1].bytes_peak = 20;
  file.devices[1].allocations = 30;
  file.devices[1].frees = 40;
  file.devices[1].untracked = 50;
  file.devices[1].out_of_memory = 60;
  file.devices[1].shortages_over = 70;
  return {reinterpret_cast<const char*>(&file), sizeof file};
}

}  // namespace corral::trace

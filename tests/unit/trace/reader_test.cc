// SPDX-License-Identifier: Apache-2.0
#include "trace/reader.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "trace_bytes.h"

namespace corral::trace {
namespace {

ProcessTrace parsed(const std::string& bytes) {
  auto trace = parse_trace(bytes, "x.trace");
  EXPECT_TRUE(trace) << (trace ? "" : trace.error().what);
  return trace ? std::move(*trace) : ProcessTrace{};
}

std::string error_of(const std::string& bytes) {
  const auto trace = parse_trace(bytes, "x.trace");
  return trace ? "no error" : trace.error().what;
}

// What one_of_everything() says, wherever its bytes come from.
void expect_everything(const ProcessTrace& trace) {
  EXPECT_EQ(trace.version, 1U);
  EXPECT_EQ(trace.pid, 4711U);
  EXPECT_EQ(trace.parent_pid, 4700U);
  EXPECT_EQ(trace.start_time_ticks, 5000U);
  EXPECT_EQ(trace.pid_namespace, 4026531836U);
  EXPECT_EQ(trace.opened_monotonic_ns, 50'000'000'000);
  EXPECT_EQ(trace.exe, "/usr/bin/python3.12");
  EXPECT_EQ(trace.argv, (std::vector<std::string>{"python3", "train.py"}));
  EXPECT_EQ(trace.cwd, "/home/user");
  EXPECT_FALSE(trace.cut);
  EXPECT_FALSE(trace.damage) << trace.damage->what;
  EXPECT_EQ(trace.unknown_records + trace.unknown_fields, 0U);

  ASSERT_EQ(trace.inits.size(), 1U);
  EXPECT_EQ(trace.inits[0].variables.at("CUDA_VISIBLE_DEVICES"), "1");
  EXPECT_EQ(trace.inits[0].variables.at("CUDA_DEVICE_ORDER"), std::nullopt);
  EXPECT_FALSE(trace.inits[0].variables.contains("SLURM_LOCALID"));

  ASSERT_EQ(trace.contexts.size(), 2U);
  const ContextEvent& made = trace.contexts[0];
  EXPECT_EQ(made.function, "cuDevicePrimaryCtxRetain");
  EXPECT_EQ(made.thread_name, "python3");
  EXPECT_EQ(made.device.ordinal, 0);
  EXPECT_EQ(made.device.uuid_text(), "abababab-abab-abab-abab-abababababab");
  EXPECT_EQ(made.device.pci, "0000:00:06.0");
  EXPECT_EQ(made.context, 0xC0FFEEU);
  EXPECT_EQ(made.monotonic_ns, 52'000'000'000);
  EXPECT_TRUE(made.primary && !made.ended && !made.found && !made.green && !made.view);
  EXPECT_EQ(made.variables.at("CUDA_VISIBLE_DEVICES"), "0");
  EXPECT_EQ(made.stack.python_source, "walker 3.12");
  ASSERT_EQ(made.stack.python.size(), 2U);
  EXPECT_EQ(made.stack.python[0].line, 1161U);
  EXPECT_EQ(made.stack.python[1], (PythonFrame{std::nullopt, "ünï/模型.py", "trainiere_模"}));
  EXPECT_EQ(made.stack.python_omitted, 3U);
  EXPECT_EQ(made.stack.native, (std::vector<NativeFrame>{{7, 0x1234}, {std::nullopt, 0x7fff0000}}));
  EXPECT_TRUE(trace.contexts[1].ended);

  ASSERT_EQ(trace.allocations.size(), 1U);
  EXPECT_EQ(trace.allocations[0].bytes, 128U << 20);
  EXPECT_TRUE(trace.allocations[0].first && trace.allocations[0].large);
  EXPECT_EQ(trace.modules.at(7).path, "/usr/lib/libtorch_cuda.so");
  EXPECT_EQ(trace.exit_monotonic_ns, 54'000'000'000);
}

TEST(reader, gives_back_what_was_written) { expect_everything(parsed(one_of_everything().bytes)); }

TEST(reader, version_1_is_readable_for_ever) {
  const std::string folder =
      std::filesystem::path(__FILE__).parent_path() / "../../fixtures/traces";
  if (std::getenv("CORRAL_UPDATE_EXPECTED") != nullptr) {
    std::filesystem::create_directories(folder);
    ASSERT_TRUE(write_file(folder + "/v1.trace", one_of_everything().bytes));
    ASSERT_TRUE(write_file(folder + "/v1.counters", one_counters_file()));
  }
  const auto traces = read_trace_folder(folder);
  ASSERT_TRUE(traces) << traces.error().what;
  ASSERT_EQ(traces->traces.size(), 1U);
  const ProcessTrace& trace = traces->traces[0];
  expect_everything(trace);
  ASSERT_TRUE(trace.counters);
  ASSERT_EQ(trace.counters->devices.size(), 1U);
  const DeviceCounters& device = trace.counters->devices[0];
  EXPECT_EQ(device.device.ordinal, 1);
  EXPECT_EQ(device.bytes_now, 10U);
  EXPECT_EQ(device.bytes_peak, 20U);
  EXPECT_EQ(device.allocations, 30U);
  EXPECT_EQ(device.frees, 40U);
  EXPECT_EQ(device.untracked, 50U);
  // Of later writers: behind the end of this file's slots.
  EXPECT_EQ(device.managed_now, 0U);
  EXPECT_EQ(device.graph_nodes, 0U);
  EXPECT_EQ(trace.counters->unknown_device, 6U);
  EXPECT_EQ(trace.counters->foreign_frees, 7U);
  EXPECT_EQ(trace.records_lost(), 1U + 5U + 3U);  // of each reason the larger of the two
}

TEST(reader, tells_kinds_of_memory_and_a_changed_folder_apart) {
  TraceBytes bytes;
  for (const std::uint32_t flags :
       {wire::kAllocationShared, wire::kAllocationManaged, wire::kAllocationGraph}) {
    bytes.add(wire::kAllocation, [&](RecordBuilder& record) {
      record.payload(wire::AllocationPayload{
          .device = device_id(0, 0xAB), .bytes = 0, .result = 0, .flags = flags});
      if (flags == wire::kAllocationShared) record.text(wire::kWorkingFolder, "/tmp", 4);
    });
  }
  const ProcessTrace trace = parsed(bytes.bytes);
  ASSERT_EQ(trace.allocations.size(), 3U);
  EXPECT_EQ(trace.unknown_fields, 0U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(trace.allocations[i].shared, i == 0);
    EXPECT_EQ(trace.allocations[i].managed, i == 1);
    EXPECT_EQ(trace.allocations[i].graph, i == 2);
    EXPECT_EQ(trace.allocations[i].cwd, i == 0 ? "/tmp" : "");
  }
}

TEST(reader, keeps_what_came_before_the_cut_wherever_it_is) {
  const std::string whole = one_of_everything().bytes;
  std::uint32_t header_bytes = 0;
  ASSERT_GE(whole.size(), sizeof(wire::FileHeader));
  std::memcpy(&header_bytes, whole.data() + offsetof(wire::FileHeader, header_bytes),
              sizeof header_bytes);
  std::size_t events = 0;
  for (std::size_t bytes = header_bytes; bytes <= whole.size(); ++bytes) {
    const ProcessTrace trace = parsed(whole.substr(0, bytes));
    EXPECT_FALSE(trace.damage) << bytes;
    const std::size_t now = trace.inits.size() + trace.contexts.size() + trace.allocations.size();
    EXPECT_GE(now, events);
    events = now;
    if (bytes == header_bytes || bytes == whole.size()) {
      EXPECT_FALSE(trace.cut);
    }
  }
  EXPECT_EQ(events, 4U);
  EXPECT_TRUE(parsed(whole.substr(0, whole.size() - 1)).cut);
  for (std::size_t bytes = 0; bytes < header_bytes; ++bytes)
    EXPECT_NE(error_of(whole.substr(0, bytes)), "no error") << bytes;
}

TEST(reader, skips_and_counts_what_it_does_not_know) {
  TraceBytes trace;
  trace.add(static_cast<wire::Kind>(99),
            [](RecordBuilder& record) { record.payload(wire::ExitPayload{.reserved = 42}); });
  trace.context(wire::kContextMade, device_id(0, 1), 1,
                [](RecordBuilder& record) { record.text(static_cast<wire::Tag>(77), "future", 6); },
                {});
  const ProcessTrace result = parsed(trace.bytes);
  EXPECT_EQ(result.unknown_records, 1U);
  EXPECT_EQ(result.unknown_fields, 1U);
  EXPECT_EQ(result.contexts.size(), 1U);
  EXPECT_FALSE(result.damage);
}

TEST(reader, takes_longer_and_shorter_payloads) {
  struct Longer {
    wire::ContextPayload known;
    std::uint64_t more;
  };
  TraceBytes trace;
  trace.add(wire::kContextMade, [](RecordBuilder& record) {
    record.payload(
        Longer{.known = {.device = device_id(1, 2), .context = 5, .result = 0, .flags = 1},
               .more = ~0ULL});
    record.text(wire::kFunction, "f", 1);
  });
  trace.add(wire::kContextMade, [](RecordBuilder& record) { record.payload(device_id(1, 2)); });
  const ProcessTrace result = parsed(trace.bytes);
  ASSERT_EQ(result.contexts.size(), 2U);
  EXPECT_EQ(result.contexts[0].context, 5U);
  EXPECT_EQ(result.contexts[0].function, "f");
  EXPECT_EQ(result.contexts[1].context, 0U);
  EXPECT_EQ(result.contexts[1].device.ordinal, 1);
}

TEST(reader, names_the_place_of_damage_and_keeps_what_came_before) {
  TraceBytes trace;
  trace.init({});
  const std::size_t second = trace.bytes.size();
  trace.context(wire::kContextMade, device_id(0, 1), 1);
  const auto damaged = [&](std::size_t at, std::uint32_t value, std::size_t bytes) {
    std::string copy = trace.bytes;
    std::memcpy(copy.data() + at, &value, bytes);
    const ProcessTrace result = parsed(copy);
    EXPECT_EQ(result.inits.size(), 1U);
    EXPECT_EQ(result.contexts.size(), 0U);
    return result.damage ? result.damage->what : result.cut ? "cut" : "no damage";
  };
  const std::string place = "x.trace: damaged at byte " + std::to_string(second) + ": ";
  EXPECT_EQ(damaged(second + 4, 0xFFFF, 2), place + "no record begins here");
  EXPECT_EQ(damaged(second, 0, 4), place + "a record of impossible size");
  EXPECT_EQ(damaged(second, 23, 4), place + "a record of impossible size");
  EXPECT_EQ(damaged(second, 0xFFFFFFF8, 4), place + "a record of impossible size");
  EXPECT_EQ(damaged(second + 12, 0xFFF8, 4), place + "a payload longer than its record");
  EXPECT_EQ(damaged(second + 12, 13, 4), place + "a payload longer than its record");
  EXPECT_EQ(damaged(second, 4096, 4), "cut");
  const std::size_t field = second + sizeof(wire::RecordHeader) + sizeof(wire::ContextPayload);
  EXPECT_EQ(damaged(field + 4, 0x7FFFFFFF, 4), place + "a field longer than its record");
}

TEST(reader, refuses_a_frame_longer_than_its_field) {
  TraceBytes trace;
  trace.add(wire::kInit, [](RecordBuilder& record) {
    record.payload(wire::InitPayload{});
    const wire::PythonFrameData frame{.line = 1, .file_bytes = 100, .function_bytes = 1};
    record.text(wire::kPythonFrame, reinterpret_cast<const char*>(&frame), sizeof frame);
  });
  const ProcessTrace result = parsed(trace.bytes);
  ASSERT_TRUE(result.damage);
  EXPECT_NE(result.damage->what.find("a Python frame longer than its field"), std::string::npos);
}

TEST(reader, refuses_other_files_and_newer_versions) {
  EXPECT_EQ(error_of(""), "x.trace: not a trace file: it does not begin with CORRALTR");
  EXPECT_EQ(error_of(std::string(4096, 'x')),
            "x.trace: not a trace file: it does not begin with CORRALTR");
  std::string newer = one_of_everything().bytes;
  newer[8] = 2;
  EXPECT_EQ(error_of(newer),
            "x.trace: trace format version 2, and this corral reads up to version 1");
  std::string header = one_of_everything().bytes;
  header[12] = 8;
  EXPECT_NE(error_of(header).find("impossible header size"), std::string::npos);
}

TEST(reader, reads_shortages_and_their_ends) {
  TraceBytes bytes;
  const auto add = [&](std::uint64_t given_back, std::uint32_t flags) {
    bytes.add(wire::kShortage, [&](RecordBuilder& record) {
      record.payload(wire::ShortagePayload{.device = device_id(1, 0xCD),
                                           .bytes = 24ULL << 30,
                                           .held = 128ULL << 30,
                                           .given_back = given_back,
                                           .result = flags == 0 ? 2 : 0,
                                           .flags = flags,
                                           .failures = 1,
                                           .reserved = 0});
      record.text(wire::kFunction, "cuMemAlloc_v2", 13);
    });
  };
  add(0, 0);
  add(32ULL << 30, wire::kShortageOver);
  const auto trace = parse_trace(bytes.bytes, "x");
  ASSERT_TRUE(trace);
  ASSERT_EQ(trace->shortages.size(), 2U);
  const ShortageEvent& end = trace->shortages[1];
  EXPECT_FALSE(trace->shortages[0].over);
  EXPECT_EQ(trace->shortages[0].result, 2);
  EXPECT_TRUE(end.over);
  EXPECT_EQ(end.function, "cuMemAlloc_v2");
  EXPECT_EQ(end.device.ordinal, 1);
  EXPECT_EQ(end.bytes >> 30, 24U);
  EXPECT_EQ(end.held_bytes >> 30, 128U);
  EXPECT_EQ(end.given_back_bytes >> 30, 32U);
  EXPECT_EQ(end.failures, 1U);
}

TEST(reader, counters_of_a_writer_that_knew_no_shortages_have_none) {
  std::string older = one_counters_file();
  constexpr std::uint32_t kOlderSlot = 104;
  std::memcpy(older.data() + offsetof(wire::CountersFile, device_bytes), &kOlderSlot, 4);
  // Slot 1 of 104 bytes, where one of today's lies later.
  std::memmove(older.data() + offsetof(wire::CountersFile, devices) + kOlderSlot,
               older.data() + offsetof(wire::CountersFile, devices[1]), kOlderSlot);
  older.resize(offsetof(wire::CountersFile, devices) + 2 * kOlderSlot);
  const auto counters = parse_counters(older, "c");
  ASSERT_TRUE(counters);
  ASSERT_EQ(counters->devices.size(), 1U);
  EXPECT_EQ(counters->devices[0].frees, 40U);
  EXPECT_EQ(counters->devices[0].out_of_memory, 0U);
}

TEST(reader, reads_counters_and_refuses_broken_ones) {
  const std::string whole = one_counters_file();
  ASSERT_TRUE(parse_counters(whole, "c"));
  for (std::size_t bytes = 0; bytes < offsetof(wire::CountersFile, devices); ++bytes)
    EXPECT_FALSE(parse_counters(std::span(whole).first(bytes), "c"));
  // A file that is cut in its devices gives those that are there.
  const auto some = parse_counters(std::span(whole).first(wire::kMaxHeaderBytes / 64), "c");
  EXPECT_TRUE(some);
  std::string sizes = whole;
  std::memset(sizes.data() + offsetof(wire::CountersFile, device_bytes), 0, 4);
  EXPECT_FALSE(parse_counters(sizes, "c"));
}

TEST(reader, names_unreadable_files_of_a_folder_and_reads_the_others) {
  const std::string folder = testing::TempDir() + "corral-reader";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  ASSERT_TRUE(write_file(folder + "/1-1.trace", "rubbish"));
  ASSERT_TRUE(write_file(folder + "/2-2.trace", one_of_everything().bytes));
  ASSERT_TRUE(write_file(folder + "/2-2.counters", "rubbish"));
  ASSERT_TRUE(write_file(folder + "/notes.txt", "x"));
  const auto traces = read_trace_folder(folder);
  ASSERT_TRUE(traces);
  ASSERT_EQ(traces->traces.size(), 1U);
  EXPECT_FALSE(traces->traces[0].counters);
  ASSERT_EQ(traces->errors.size(), 1U);
  EXPECT_NE(traces->errors[0].what.find("1-1.trace"), std::string::npos);
  EXPECT_FALSE(read_trace_folder(folder + "/nowhere"));
  std::filesystem::remove_all(folder);
}

// What a hostile job may put where its trace would be: none of it is opened.
TEST(reader, opens_regular_files_of_a_bounded_size_only) {
  const std::string folder = testing::TempDir() + "corral-reader-hostile";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const auto error_at = [&](const std::string& name) {
    const auto trace = read_trace(folder + "/" + name);
    return trace ? "no error" : trace.error().what;
  };
  ASSERT_TRUE(write_file(folder + "/2-2.trace", one_of_everything().bytes));
  ASSERT_EQ(::symlink("2-2.trace", (folder + "/link.trace").c_str()), 0);
  EXPECT_NE(error_at("link.trace").find("a symbolic link"), std::string::npos);
  ASSERT_EQ(::mkfifo((folder + "/fifo.trace").c_str(), 0600), 0);
  EXPECT_NE(error_at("fifo.trace").find("a named pipe"), std::string::npos);
  std::filesystem::create_directory(folder + "/folder.trace");
  EXPECT_NE(error_at("folder.trace").find("a folder"), std::string::npos);
  ASSERT_TRUE(write_file(folder + "/big.trace", "x"));
  ASSERT_EQ(::truncate((folder + "/big.trace").c_str(), 1L << 40), 0);
  EXPECT_NE(error_at("big.trace").find("1099511627776 bytes"), std::string::npos);

  // The same beside a good trace costs it its counters only.
  ASSERT_EQ(::mkfifo((folder + "/2-2.counters").c_str(), 0600), 0);
  const auto traces = read_trace_folder(folder);
  ASSERT_TRUE(traces);
  ASSERT_EQ(traces->traces.size(), 1U);
  EXPECT_FALSE(traces->traces[0].counters);
  EXPECT_EQ(traces->errors.size(), 4U);
  ASSERT_TRUE(write_file(folder + "/counters", one_counters_file()));
  ASSERT_EQ(::unlink((folder + "/2-2.counters").c_str()), 0);
  ASSERT_EQ(::symlink("counters", (folder + "/2-2.counters").c_str()), 0);
  EXPECT_FALSE(read_trace(folder + "/2-2.trace")->counters);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace corral::trace

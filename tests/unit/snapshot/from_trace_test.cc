// SPDX-License-Identifier: Apache-2.0
#include "snapshot/from_trace.h"

#include <gtest/gtest.h>

#include "../trace/trace_bytes.h"
#include "host/pci_address.h"

namespace corral::snapshot {
namespace {

using trace::ProcessTrace;
using trace::RecordBuilder;
using trace::TraceBytes;
namespace wire = corral::wire;

constexpr std::int64_t kStart = 50'000'000'000;

ProcessTrace parsed(const TraceBytes& bytes) {
  auto trace = trace::parse_trace(bytes.bytes, "x.trace");
  EXPECT_TRUE(trace);
  return std::move(*trace);
}

// Two GPUs with the UUIDs aa… and bb…, the second with a MIG instance dd….
Run two_gpus() {
  Run run;
  for (unsigned i = 0; i < 2; ++i) {
    GpuRun gpu;
    gpu.gpu.index = i;
    const char* const digits = i == 0 ? "aa" : "bb";
    std::string uuid = "GPU-";
    for (int byte = 0; byte < 16; ++byte) {
      if (byte == 4 || byte == 6 || byte == 8 || byte == 10) uuid += '-';
      uuid += digits;
    }
    gpu.gpu.uuid = uuid;
    gpu.gpu.pci = *host::PciAddress::parse(i == 0 ? "0000:00:06.0" : "0000:00:07.0");
    run.gpus.push_back(std::move(gpu));
  }
  run.gpus[1].gpu.mig.emplace_back().uuid = "MIG-dddddddd-dddd-dddd-dddd-dddddddddddd";
  return run;
}

Run run_of(const std::vector<ProcessTrace>& traces) {
  Run run = two_gpus();
  add_traces(traces, kStart, run);
  return run;
}

TEST(from_trace, a_context_is_on_the_gpu_of_its_uuid_whatever_its_ordinal) {
  TraceBytes bytes;
  bytes.context(wire::kContextMade, trace::device_id(0, 0xBB), 1);
  const auto run = run_of({parsed(bytes)});
  ASSERT_EQ(run.contexts.size(), 1U);
  EXPECT_EQ(run.contexts[0].gpu, 1U);
  EXPECT_EQ(run.contexts[0].gpu_uuid, run.gpus[1].gpu.uuid);
  EXPECT_EQ(run.gpus[0].contexts, 0U);
  EXPECT_EQ(run.gpus[1].contexts, 1U);
}

void add_shortage(TraceBytes& bytes, std::uint64_t size, unsigned failures,
                  std::optional<std::uint64_t> given_back, std::uint32_t tid = 4711) {
  bytes.add(
      wire::kShortage,
      [&](RecordBuilder& record) {
        record.payload(wire::ShortagePayload{.device = trace::device_id(0, 0xBB),
                                             .bytes = size,
                                             .held = 1000,
                                             .given_back = given_back.value_or(0),
                                             .result = given_back ? 0 : 2,
                                             .flags = given_back ? wire::kShortageOver : 0,
                                             .failures = failures,
                                             .reserved = 0});
        record.text(wire::kFunction, "cuMemAlloc_v2", 13);
      },
      51'000'000'000, tid);
}

TEST(from_trace, a_shortage_and_its_end_are_one) {
  TraceBytes bytes;
  add_shortage(bytes, 50, 1, {});
  add_shortage(bytes, 70, 1, {}, 4712);
  add_shortage(bytes, 50, 2, {});
  add_shortage(bytes, 50, 2, 300);
  add_shortage(bytes, 60, 1, {});
  add_shortage(bytes, 60, 1, {});
  add_shortage(bytes, 80, 3, 0, 4713);
  const auto run = run_of({parsed(bytes)});
  ASSERT_EQ(run.shortages.size(), 5U);
  EXPECT_EQ(run.shortages[0].gpu, 1U);
  EXPECT_EQ(run.shortages[0].bytes, 50U);
  EXPECT_EQ(run.shortages[0].failures, 2U);
  EXPECT_EQ(run.shortages[0].held_bytes, 1000U);
  EXPECT_EQ(run.shortages[0].given_back_bytes, 300U);
  EXPECT_EQ(run.shortages[0].time_s, 1.0);
  EXPECT_EQ(run.shortages[1].given_back_bytes, std::nullopt) << "of another thread";
  EXPECT_EQ(run.shortages[2].failures, 1U);
  EXPECT_EQ(run.shortages[3].failures, 1U) << "once more, after something else";
  EXPECT_EQ(run.shortages[4].given_back_bytes, 0U) << "its beginning was not written";
  EXPECT_EQ(run.gpus[1].allocations_refused, std::nullopt) << "no counters file";
}

TEST(from_trace, refusals_are_counted_over_all_processes) {
  TraceBytes bytes;
  ProcessTrace trace = parsed(bytes);
  trace.counters.emplace();
  trace::Device device;
  device.uuid.emplace().fill(0xBB);
  trace.counters->devices.push_back({.device = device, .out_of_memory = 3});
  const auto run = run_of({trace, trace});
  EXPECT_EQ(run.gpus[1].allocations_refused, 6U);
  EXPECT_EQ(run.gpus[0].allocations_refused, 0U);
  EXPECT_EQ(run_of({trace, parsed(bytes)}).gpus[1].allocations_refused, std::nullopt);
}

TEST(from_trace, a_mig_instance_belongs_to_its_gpu) {
  TraceBytes bytes;
  bytes.context(wire::kContextMade, trace::device_id(0, 0xDD), 1);
  EXPECT_EQ(run_of({parsed(bytes)}).contexts[0].gpu, 1U);
}

TEST(from_trace, without_a_uuid_the_pci_address_tells_and_without_both_nothing_does) {
  wire::DeviceId no_uuid = trace::device_id(1, 0xBB);
  no_uuid.flags = wire::kDevicePci;
  wire::DeviceId nothing = no_uuid;
  nothing.flags = 0;
  TraceBytes bytes;
  bytes.context(wire::kContextMade, no_uuid, 1);
  bytes.context(wire::kContextMade, nothing, 2);
  const auto run = run_of({parsed(bytes)});
  EXPECT_EQ(run.contexts[0].gpu, 1U);
  EXPECT_EQ(run.contexts[1].gpu, std::nullopt);
  EXPECT_EQ(run.gpus[1].contexts, 1U);
  EXPECT_EQ(run.gpus[0].contexts, std::nullopt) << "the unknown one may be on it";
  EXPECT_FALSE(run.notes.empty());
}

TEST(from_trace, an_unknown_gpu_keeps_its_uuid) {
  wire::DeviceId unknown = trace::device_id(0, 0xEE);
  unknown.flags = wire::kDeviceUuid;
  TraceBytes bytes;
  bytes.context(wire::kContextMade, unknown, 1);
  const auto run = run_of({parsed(bytes)});
  EXPECT_EQ(run.contexts[0].gpu, std::nullopt);
  EXPECT_EQ(run.contexts[0].gpu_uuid, "eeeeeeee-eeee-eeee-eeee-eeeeeeeeeeee");
}

TEST(from_trace, failures_and_second_handles_are_no_contexts) {
  TraceBytes bytes;
  const auto nothing = [](RecordBuilder&) {};
  bytes.context(wire::kContextMade, trace::device_id(0, 0xAA), 0, nothing, {.result = 2});
  bytes.context(wire::kContextMade, trace::device_id(0, 0xAA), 5, nothing,
                {.flags = wire::kContextGreen});
  bytes.context(wire::kContextMade, trace::device_id(0, 0xAA), 6, nothing,
                {.flags = wire::kContextGreen | wire::kContextView});
  EXPECT_EQ(run_of({parsed(bytes)}).gpus[0].contexts, 1U);
}

TEST(from_trace, a_number_that_no_device_has_is_kept_with_its_call) {
  TraceBytes bytes;
  bytes.context(wire::kContextMade, trace::device_id(1, 0xAA), 0, [](RecordBuilder&) {},
                {.result = 101});
  bytes.context(wire::kContextMade, trace::device_id(1, 0xAA), 0, [](RecordBuilder&) {},
                {.result = 2});
  bytes.add(wire::kNoSuchDevice, [](RecordBuilder& record) {
    record.payload(wire::NoSuchDevicePayload{.ordinal = 7, .result = 101});
    record.text(wire::kFunction, "cuDeviceGet", 11);
  });
  const auto run = run_of({parsed(bytes)});
  ASSERT_EQ(run.no_such_devices.size(), 2U);
  EXPECT_EQ(run.no_such_devices[0].ordinal, 7);
  EXPECT_EQ(run.no_such_devices[0].call, "cuDeviceGet");
  EXPECT_EQ(run.no_such_devices[1].ordinal, 1);
}

TEST(from_trace, what_the_shim_refused_is_kept_and_is_no_context_of_the_gpu) {
  TraceBytes bytes;
  const auto nothing = [](RecordBuilder&) {};
  bytes.context(wire::kContextMade, trace::device_id(0, 0xAA), 0, nothing,
                {.result = 46, .flags = wire::kContextDenied | wire::kContextPrimary});
  bytes.context(wire::kContextMade, trace::device_id(1, 0xBB), 0, nothing, {.result = 46});
  const auto run = run_of({parsed(bytes)});
  ASSERT_EQ(run.contexts.size(), 1U) << "a driver's own refusal is none";
  EXPECT_TRUE(run.contexts[0].denied);
  EXPECT_EQ(run.gpus[0].contexts, 0U);
}

TEST(from_trace, what_a_listed_process_allocated_comes_from_its_counters) {
  TraceBytes bytes;
  bytes.context(wire::kContextMade, trace::device_id(0, 0xAA), 1);
  ProcessTrace trace = parsed(bytes);
  trace::DeviceCounters counters;
  counters.device.uuid.emplace().fill(0xAA);
  counters.bytes_now = 5;
  counters.bytes_peak = 100;
  const auto allocated = [&](const std::vector<ProcessTrace>& traces, unsigned on,
                             const std::vector<pid_t>& listed) {
    auto run = two_gpus();
    for (const pid_t pid : listed)
      run.gpus[on].processes.push_back(
          {.pid = pid, .memory_bytes = {}, .of_job = true, .command = ""});
    add_traces(traces, kStart, run);
    return run.gpus[on].processes[0].allocated_peak_bytes;
  };
  EXPECT_EQ(allocated({trace}, 0, {4711}), std::nullopt) << "without a counters file";
  trace.counters.emplace().devices = {counters};
  EXPECT_EQ(allocated({trace}, 0, {4711}), 100U);
  EXPECT_EQ(allocated({trace}, 1, {4711}), 0U);
  EXPECT_EQ(allocated({trace}, 0, {1}), std::nullopt) << "not observed";
  EXPECT_EQ(allocated({trace}, 0, {4711, 4711}), std::nullopt) << "the pid was used twice";
  trace.counters->devices[0].untracked = 1;
  EXPECT_EQ(allocated({trace}, 0, {4711}), std::nullopt) << "some found no room in the table";
  EXPECT_EQ(allocated({trace}, 1, {4711}), 0U);
}

TEST(from_trace, an_end_belongs_to_the_last_context_of_that_handle) {
  const wire::DeviceId device = trace::device_id(0, 0xAA);
  const auto nothing = [](RecordBuilder&) {};
  TraceBytes bytes;
  bytes.context(wire::kContextMade, device, 1, nothing, {.monotonic_ns = kStart + 1'000'000'000});
  bytes.context(wire::kContextEnded, device, 1, nothing, {.monotonic_ns = kStart + 2'000'000'000});
  bytes.context(wire::kContextMade, device, 1, nothing, {.monotonic_ns = kStart + 3'000'000'000});
  bytes.context(wire::kContextEnded, device, 99, nothing, {.monotonic_ns = kStart + 4'000'000'000});
  const auto run = run_of({parsed(bytes)});
  ASSERT_EQ(run.contexts.size(), 2U);
  EXPECT_EQ(run.contexts[0].time_s, 1);
  EXPECT_EQ(run.contexts[0].ended_s, 2);
  EXPECT_EQ(run.contexts[1].time_s, 3);
  EXPECT_EQ(run.contexts[1].ended_s, std::nullopt);
}

TEST(from_trace, names_process_rank_and_thread) {
  TraceBytes bytes;
  bytes.init({"LOCAL_RANK=1", "RANK=9", "CUDA_VISIBLE_DEVICES=0,1", "CUDA_DEVICE_ORDER"});
  bytes.context(wire::kContextMade, trace::device_id(0, 0xAA), 1);
  bytes.context(wire::kContextMade, trace::device_id(0, 0xAA), 2, [](RecordBuilder&) {},
                {.tid = 4712});
  const auto run = run_of({parsed(bytes)});
  EXPECT_EQ(run.contexts[0].process, "python3 train.py");
  EXPECT_EQ(run.contexts[0].rank, 9);
  EXPECT_EQ(run.contexts[0].thread, "MainThread");
  EXPECT_EQ(run.contexts[1].thread, "python3");
  EXPECT_EQ(run.contexts[0].pid, 4711);
  EXPECT_EQ(run.inits[0].visible_devices, "0,1");
  EXPECT_EQ(run.inits[0].device_order, std::nullopt);
}

TEST(from_trace, tells_every_variable_and_the_folder_that_changed_since_cuinit) {
  TraceBytes bytes;
  bytes.init({"LOCAL_RANK=1", "RANK=1", "CUDA_VISIBLE_DEVICES=0,1"});
  bytes.context(wire::kContextMade, trace::device_id(1, 0xAA), 1);
  bytes.context(wire::kContextMade, trace::device_id(0, 0xBB), 2,
                [](RecordBuilder& record) {
                  record.text(wire::kVariable, "LOCAL_RANK=0", 12);
                  record.text(wire::kVariable, "RANK", 4);
                  record.text(wire::kWorkingFolder, "/tmp", 4);
                },
                {});
  const auto run = run_of({parsed(bytes)});
  EXPECT_TRUE(run.contexts[0].changed_variables.empty());
  EXPECT_EQ(run.contexts[0].cwd, "/home/user");
  EXPECT_EQ(run.contexts[1].changed_variables, (std::map<std::string, std::optional<std::string>>{
                                                   {"LOCAL_RANK", "0"}, {"RANK", std::nullopt}}));
  EXPECT_EQ(run.contexts[1].cwd, "/tmp");
  EXPECT_FALSE(run.contexts[1].visible_devices_changed);
  EXPECT_EQ(run.contexts[1].visible_devices, "0,1");
}

// Whoever was calling when the driver was asked has made nothing.
TEST(from_trace, a_context_that_no_hook_saw_made_has_no_stack_and_no_culprit) {
  TraceBytes bytes;
  for (const int device : {0, 1})
    bytes.add(wire::kContextMade, [&](RecordBuilder& record) {
      record.payload(
          wire::ContextPayload{.device = trace::device_id(device, device == 0 ? 0xAA : 0xBB),
                               .context = 0,
                               .result = 0,
                               .flags = wire::kContextPrimary | wire::kContextFound});
      record.text(wire::kFunction, "cuDevicePrimaryCtxGetState", 26);
      trace::python_frame(record, 7, "/home/user/train.py", "innocent");
    });
  bytes.context(wire::kContextEnded, trace::device_id(1, 0xBB), 0);
  const auto run = run_of({parsed(bytes)});
  ASSERT_EQ(run.contexts.size(), 2U);
  EXPECT_TRUE(run.contexts[0].found);
  EXPECT_TRUE(run.contexts[0].stack.python.empty());
  EXPECT_EQ(run.contexts[0].stack.python_source, "no hook saw it made");
  EXPECT_EQ(run.contexts[0].culprit, std::nullopt);
  EXPECT_EQ(run.contexts[0].ended_s, std::nullopt);
  EXPECT_TRUE(run.contexts[1].ended_s);
}

TEST(from_trace, keeps_what_was_known_at_cuinit_and_what_had_changed_by_the_context) {
  TraceBytes bytes;
  bytes.init({"LOCAL_RANK=1", "RANK", "CUDA_VISIBLE_DEVICES=0,1"});
  bytes.context(wire::kContextMade, trace::device_id(1, 0xAA), 1);
  const std::string changed = "CUDA_VISIBLE_DEVICES=1";
  bytes.context(
      wire::kContextMade, trace::device_id(0, 0xBB), 2,
      [&](RecordBuilder& record) { record.text(wire::kVariable, changed.data(), changed.size()); },
      {.flags = wire::kContextPrimary | wire::kContextFound});
  const auto run = run_of({parsed(bytes)});
  EXPECT_EQ(run.inits[0].rank_variables, (std::map<std::string, std::string>{{"LOCAL_RANK", "1"}}));
  EXPECT_EQ(run.inits[0].argv, (std::vector<std::string>{"python3", "train.py"}));
  EXPECT_FALSE(run.inits[0].cwd.empty());
  EXPECT_EQ(run.contexts[0].ordinal, 1);
  EXPECT_FALSE(run.contexts[0].found);
  EXPECT_FALSE(run.contexts[0].visible_devices_changed);
  EXPECT_EQ(run.contexts[0].visible_devices, "0,1");
  EXPECT_TRUE(run.contexts[1].found);
  EXPECT_TRUE(run.contexts[1].visible_devices_changed);
  EXPECT_EQ(run.contexts[1].visible_devices, "1");
}

TEST(from_trace, a_rank_that_is_no_number_is_none) {
  TraceBytes bytes;
  bytes.init({"RANK=", "LOCAL_RANK=two", "SLURM_LOCALID"});
  bytes.context(wire::kContextMade, trace::device_id(0, 0xAA), 1);
  EXPECT_EQ(run_of({parsed(bytes)}).contexts[0].rank, std::nullopt);
}

TEST(from_trace, resolves_the_modules_of_native_frames) {
  const auto run = run_of({parsed(trace::one_of_everything())});
  const Stack& stack = run.contexts[0].stack;
  ASSERT_EQ(stack.native.size(), 2U);
  EXPECT_EQ(stack.native[0].module, "/usr/lib/libtorch_cuda.so");
  EXPECT_EQ(stack.native[0].offset, 0x1234U);
  EXPECT_EQ(stack.native[1].module, "");
  EXPECT_EQ(stack.python_source, "walker 3.12");
  EXPECT_EQ(stack.python_omitted, 3U);
  EXPECT_EQ(run.contexts[0].culprit->file, "ünï/模型.py");
}

TEST(from_trace, keeps_the_main_threads_frames_apart_and_blames_none_of_them) {
  TraceBytes bytes;
  bytes.context(wire::kContextMade, trace::device_id(0, 0xAA), 1,
                [&](RecordBuilder& record) {
                  const std::string source = "walker 3.12", none = "no Python state on this thread";
                  record.text(wire::kPythonSource, none.data(), none.size());
                  record.text(wire::kMainThreadSource, source.data(), source.size());
                  record.python_frame(wire::kMainThreadFrame, 14, "train.py", 8, "main", 4);
                  record.python_omitted(wire::kMainThreadOmitted, 2);
                },
                {});
  const auto run = run_of({parsed(bytes)});
  const Context& context = run.contexts[0];
  EXPECT_EQ(context.stack.main_thread,
            (std::vector<PythonFrame>{{.file = "train.py", .line = 14, .function = "main"}}));
  EXPECT_EQ(context.stack.main_thread_source, "walker 3.12");
  EXPECT_EQ(context.stack.main_thread_omitted, 2U) << "a stack with a gap must not look whole";
  EXPECT_EQ(context.stack.python_source, "no Python state on this thread");
  EXPECT_TRUE(context.stack.python.empty());
  EXPECT_EQ(context.culprit, std::nullopt);
}

TEST(from_trace, sorts_the_events_of_all_processes_and_adds_their_losses) {
  TraceBytes late(1), early(2);
  const auto nothing = [](RecordBuilder&) {};
  late.context(wire::kContextMade, trace::device_id(0, 0xAA), 1, nothing,
               {.monotonic_ns = kStart + 9'000'000'000});
  early.context(wire::kContextMade, trace::device_id(1, 0xBB), 1, nothing,
                {.monotonic_ns = kStart + 1'000'000'000});
  for (TraceBytes* bytes : {&late, &early}) {
    bytes->add(wire::kLost, [](RecordBuilder& record) {
      record.payload(wire::LostPayload{.by_reason = {0, 4, 0, 0}});
    });
  }
  const auto run = run_of({parsed(late), parsed(early)});
  EXPECT_EQ(run.contexts[0].pid, 2);
  EXPECT_EQ(run.contexts[1].pid, 1);
  EXPECT_EQ(run.coverage.records_lost, 8U);
}

TEST(from_trace, a_file_that_ends_within_a_record_is_noted) {
  TraceBytes bytes(7);
  bytes.context(wire::kContextMade, trace::device_id(0, 0xAA), 1);
  const auto parse = [&](std::string_view text) { return trace::parse_trace(text, "x").value(); };
  EXPECT_TRUE(run_of({parse(bytes.bytes)}).notes.empty());
  const auto run = run_of({parse(std::string_view(bytes.bytes).substr(0, bytes.bytes.size() - 1))});
  EXPECT_TRUE(run.contexts.empty());
  ASSERT_EQ(run.notes.size(), 1U) << "no context seen is not no context";
  EXPECT_NE(run.notes[0].find("pid 7"), std::string::npos);
}

TEST(from_trace, a_damaged_file_is_noted) {
  TraceBytes bytes;
  bytes.bytes += std::string(64, 'x');
  const auto run = run_of({parsed(bytes)});
  ASSERT_EQ(run.notes.size(), 1U);
  EXPECT_NE(run.notes[0].find("damaged at byte"), std::string::npos);
}

TEST(from_trace, nothing_traced_is_no_context_on_every_gpu) {
  const auto run = run_of({});
  EXPECT_EQ(run.gpus[0].contexts, 0U);
  EXPECT_TRUE(run.contexts.empty());
}

std::string culprit_among(const std::vector<std::string>& innermost_first) {
  std::vector<PythonFrame> frames;
  for (const std::string& file : innermost_first)
    frames.push_back({.file = file, .line = 1, .function = "f"});
  const auto culprit = culprit_of(frames);
  return culprit ? culprit->file : "none";
}

TEST(culprit, is_the_innermost_frame_of_the_users_own_code) {
  const std::string torch = "/venv/lib/python3.12/site-packages/torch/cuda/__init__.py";
  EXPECT_EQ(culprit_among({torch, "train.py", "main.py"}), "train.py");
  EXPECT_EQ(culprit_among({"/usr/lib/python3/dist-packages/numba/x.py", "a.py"}), "a.py");
  EXPECT_EQ(culprit_among({"/usr/lib/python3.12/threading.py", "a.py"}), "a.py");
  EXPECT_EQ(culprit_among({"/opt/lib64/python3.9/runpy.py", "a.py"}), "a.py");
  EXPECT_EQ(culprit_among({"<frozen runpy>", "a.py"}), "a.py");
  EXPECT_EQ(culprit_among({"/home/me/lib/pythonic/a.py", "b.py"}), "/home/me/lib/pythonic/a.py");
  EXPECT_EQ(culprit_among({"<ipython-input-3-abc>", "b.py"}), "<ipython-input-3-abc>");
  EXPECT_EQ(culprit_among({"/tmp/ipykernel_12/34.py", torch}), "/tmp/ipykernel_12/34.py");
}

TEST(culprit, is_text_without_a_file_only_when_no_file_is_there) {
  EXPECT_EQ(culprit_among({"<string>", "a.py"}), "a.py");
  EXPECT_EQ(culprit_among({"/usr/lib/python3.12/json/x.py", "<string>"}), "<string>");
  EXPECT_EQ(culprit_among({"<stdin>", "<frozen runpy>"}), "<stdin>");
}

TEST(culprit, without_own_code_is_the_innermost_frame) {
  EXPECT_EQ(culprit_among({"<frozen a>", "/x/site-packages/b.py"}), "<frozen a>");
  EXPECT_EQ(culprit_among({}), "none");
}

}  // namespace
}  // namespace corral::snapshot

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "report/run_json.h"
#include "report/run_summary.h"
#include "report/run_text.h"

namespace corral::report {
namespace {

using snapshot::GpuRun;
using JobRun = snapshot::Run;
using snapshot::Sample;

constexpr std::uint64_t kMiB = 1 << 20;

GpuRun gpu(unsigned index, bool allowed) {
  GpuRun out;
  out.gpu.index = index;
  out.gpu.node = "/dev/nvidia" + std::to_string(index);
  out.gpu.uuid = "GPU-" + std::to_string(index);
  out.gpu.name = "NVIDIA H200";
  out.allowed = allowed;
  out.contexts = allowed ? 1 : 0;
  out.process_list_known = true;
  out.samples = {
      {.time_s = -0.1, .memory_used_bytes = 615 * kMiB, .power_w = 77.0, .sm_clock_mhz = 345},
      {.time_s = 0.1, .memory_used_bytes = 615 * kMiB, .power_w = 78.0, .sm_clock_mhz = 345},
      {.time_s = 0.2, .memory_used_bytes = 617 * kMiB, .power_w = 80.0, .sm_clock_mhz = 347},
      {.time_s = 0.3, .memory_used_bytes = 616 * kMiB, .power_w = 80.0, .sm_clock_mhz = 347}};
  return out;
}

JobRun clean_run() {
  JobRun run;
  run.command = {"python3", "train.py"};
  run.exit.code = 0;
  run.duration_s = 12.34;
  run.gpus = {gpu(0, false), gpu(1, true)};
  run.confinement = {.enforced = "cgroup",
                     .layers = {"cgroup v2"},
                     .requested = true,
                     .nothing_to_refuse = false,
                     .tight = false,
                     .as_root = true,
                     .visible_devices = "GPU-1",
                     .refused = {"/dev/nvidia0"},
                     .not_covered = {},
                     .general_limits = {}};
  return run;
}

TEST(numbers, the_time_before_the_job_is_not_in_the_mean) {
  const GpuNumbers n = numbers(clean_run(), gpu(0, false));
  EXPECT_DOUBLE_EQ(*n.power_before_w, 77.0);
  EXPECT_DOUBLE_EQ(*n.power_mean_w, 79.0);
  EXPECT_EQ(*n.memory_min_bytes, 615 * kMiB);
  EXPECT_EQ(*n.memory_max_bytes, 617 * kMiB);
}

TEST(numbers, a_first_reading_right_after_the_start_is_from_before_the_jobs_contexts) {
  GpuRun late = gpu(0, false);
  late.samples.erase(late.samples.begin());
  late.samples.front().time_s = 0.04;
  JobRun run = clean_run();
  EXPECT_EQ(numbers(run, late).power_before_w, 78.0);
  EXPECT_DOUBLE_EQ(*numbers(run, late).power_mean_w, (78.0 * 0.16 + 80.0 * 0.1) / 0.26)
      << "it is in the job's time, too";
  run.contexts.resize(1);
  run.contexts[0].time_s = 0.05;
  EXPECT_EQ(numbers(run, late).power_before_w, 78.0);
  run.contexts[0].time_s = 0.03;
  EXPECT_EQ(numbers(run, late).power_before_w, std::nullopt) << "the job was there first";
  run.contexts.clear();
  late.samples.front().time_s = 0.11;
  EXPECT_EQ(numbers(run, late).power_before_w, std::nullopt) << "too late to know";
}

TEST(numbers, what_was_not_read_is_unknown_and_not_zero) {
  GpuRun quiet = gpu(0, false);
  for (Sample& sample : quiet.samples)
    sample = {.time_s = sample.time_s, .memory_used_bytes = {}, .power_w = {}, .sm_clock_mhz = {}};
  const GpuNumbers n = numbers(clean_run(), quiet);
  EXPECT_FALSE(n.power_mean_w || n.power_before_w || n.memory_min_bytes || n.sm_clock_mean_mhz);
}

// A process of the job with 518 MiB by NVML, of which it allocated 64.
GpuRun gpu_with_job(pid_t pid) {
  GpuRun out = gpu(0, true);
  out.processes = {{.pid = pid,
                    .memory_bytes = 518 * kMiB,
                    .allocated_peak_bytes = 64 * kMiB,
                    .of_job = true,
                    .command = ""}};
  return out;
}

TEST(job_memory, what_no_call_explains_is_a_number) {
  JobRun run = clean_run();
  run.contexts.resize(1);
  run.contexts[0].gpu = 0;
  run.contexts[0].pid = 7;
  GpuRun used = gpu_with_job(7);
  used.processes.push_back(gpu_with_job(8).processes[0]);
  used.processes.push_back({.pid = 9, .memory_bytes = kMiB, .of_job = false, .command = ""});
  EXPECT_EQ(job_memory(run, used).allocated_peak_bytes, 128 * kMiB);
  EXPECT_EQ(job_memory(run, used).unexplained_peak_bytes, 2 * 454 * kMiB);
}

TEST(job_memory, is_unknown_where_a_part_is) {
  JobRun run = clean_run();
  GpuRun used = gpu_with_job(7);
  used.processes[0].allocated_peak_bytes.reset();
  EXPECT_EQ(job_memory(run, used).allocated_peak_bytes, std::nullopt);
  used = gpu_with_job(7);
  used.processes[0].memory_bytes.reset();
  EXPECT_EQ(job_memory(run, used).allocated_peak_bytes, 64 * kMiB);
  EXPECT_EQ(job_memory(run, used).unexplained_peak_bytes, std::nullopt);
  used = gpu_with_job(7);
  used.processes[0].memory_bytes = kMiB;
  EXPECT_EQ(job_memory(run, used).unexplained_peak_bytes, std::nullopt) << "its peak was missed";
  used = gpu_with_job(7);
  used.process_list_known = false;
  EXPECT_EQ(job_memory(run, used).unexplained_peak_bytes, std::nullopt);
  used = gpu_with_job(7);
  run.contexts.resize(1);
  run.contexts[0].gpu = 0;
  run.contexts[0].pid = 70;
  EXPECT_EQ(job_memory(run, used).unexplained_peak_bytes, std::nullopt) << "one was not listed";
}

TEST(touched, a_context_or_a_listed_process_is_proof) {
  JobRun run = clean_run();
  run.confinement.enforced = "none";
  run.gpus[0].contexts = 1;
  EXPECT_EQ(touched(run, run.gpus[0]), true);
  run.gpus[0].contexts.reset();
  run.gpus[0].processes = {{.pid = 1, .memory_bytes = {}, .of_job = true, .command = ""}};
  EXPECT_EQ(touched(run, run.gpus[0]), true);
}

TEST(touched, a_list_that_is_read_once_a_second_proves_no_absence) {
  JobRun run = clean_run();
  run.confinement.enforced = "none";
  run.gpus[0].contexts.reset();
  run.gpus[0].process_list_known = true;
  EXPECT_EQ(touched(run, run.gpus[0]), std::nullopt);
  run.gpus[0].contexts = 0;
  EXPECT_EQ(touched(run, run.gpus[0]), false) << "every process was observed";
  run.coverage.unobserved = {{.pid = 1, .process = "", .why = ""}};
  EXPECT_EQ(touched(run, run.gpus[0]), std::nullopt) << "one was not";
}

TEST(touched, what_the_kernel_refused_was_not_touched) {
  JobRun run = clean_run();
  run.coverage.unobserved = {{.pid = 1, .process = "", .why = ""}};
  run.gpus[0].contexts.reset();
  EXPECT_EQ(touched(run, run.gpus[0]), false);
  EXPECT_EQ(touched(run, run.gpus[1]), true) << "its context was seen";
}

TEST(text, what_was_refused_beside_the_gpus_is_named) {
  JobRun run = clean_run();
  run.confinement.refused.push_back("/dev/kvm");
  EXPECT_NE(run_text(run, {}, {}).find("could not open GPU 0 and /dev/kvm ("), std::string::npos);
  run.confinement.refused.insert(run.confinement.refused.end(), {"/a", "/b", "/c"});
  EXPECT_NE(run_text(run, {}, {}).find("could not open GPU 0 and 4 other nodes ("),
            std::string::npos);
}

TEST(text, a_context_that_no_reading_saw_is_not_said_to_take_nothing) {
  JobRun run = clean_run();
  for (Sample& sample : run.gpus[1].samples) sample.memory_used_bytes = 0;
  EXPECT_NE(run_text(run, {}, {}).find("1 context, memory not read while it was there"),
            std::string::npos)
      << run_text(run, {}, {});
}

TEST(text, a_clean_run_takes_three_lines_on_two_gpus) {
  const std::string text = run_text(clean_run(), {}, {});
  EXPECT_EQ(std::ranges::count(text, '\n'), 3) << text;
  EXPECT_NE(text.find("could not open GPU 0 (cgroup v2, as root)"), std::string::npos) << text;
  EXPECT_NE(text.find("GPU 0 untouched: 0 contexts"), std::string::npos) << text;
}

TEST(text, a_remark_is_for_those_who_ask) {
  JobRun run = clean_run();
  run.remarks = {"too short"};
  EXPECT_EQ(run_text(run, {}, {}).find("too short"), std::string::npos);
  EXPECT_NE(run_text(run, {}, {.color = false, .verbose = true}).find("note: too short"),
            std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(run_json(run, {}))["notes"],
            nlohmann::json::array({"too short"}));
}

TEST(text, many_untouched_gpus_share_a_line) {
  JobRun run = clean_run();
  run.gpus.clear();
  for (unsigned i = 0; i < 16; ++i) run.gpus.push_back(gpu(i, i == 5));
  const std::string text = run_text(run, {}, {});
  EXPECT_EQ(std::ranges::count(text, '\n'), 3) << text;
  EXPECT_NE(text.find("GPU 0-4, 6-15 untouched"), std::string::npos) << text;
}

TEST(text, an_unenforced_run_says_so) {
  JobRun run = clean_run();
  run.confinement.enforced = "none";
  run.confinement.layers.clear();
  EXPECT_NE(run_text(run, {}, {}).find("NOT ENFORCED"), std::string::npos);
}

TEST(text, every_line_of_a_simulated_run_says_so) {
  JobRun run = clean_run();
  run.simulated = true;
  const std::string text = run_text(run, {}, {});
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
    EXPECT_TRUE(text.substr(at).starts_with("corral (SIMULATED): ")) << text;
}

TEST(text, names_from_the_machine_cannot_command_the_terminal) {
  JobRun run = clean_run();
  run.command = {"\x1b]0;evil\x07"};
  run.notes = {"\x1b[2J"};
  EXPECT_EQ(run_text(run, {}, {}).find('\x1b'), std::string::npos);
}

TEST(text, the_same_fault_of_many_processes_is_told_once) {
  rules::Verdict verdict;
  for (pid_t pid = 1; pid <= 50; ++pid)
    verdict.findings.push_back({.id = "stray.x",
                                .severity = rules::Severity::error,
                                .gpu = 0,
                                .pid = pid,
                                .title = "t",
                                .evidence = {"e"},
                                .cause = "c",
                                .verify = "v",
                                .fix = "f",
                                .contexts = {}});
  const std::string text = run_text(clean_run(), verdict, {});
  EXPECT_NE(text.find("and the same in 49 more"), std::string::npos) << text;
}

TEST(json, has_the_fields_of_schema_1) {
  JobRun run = clean_run();
  snapshot::Context context;
  context.gpu = 1;
  context.call = "cuCtxCreate_v4";
  run.contexts = {context};
  run.inits = {{}};
  rules::Verdict verdict;
  verdict.findings.resize(1);
  const auto json = nlohmann::json::parse(run_json(run, verdict));
  for (const char* key :
       {"schema", "version", "simulated", "command", "started", "duration_s", "exit", "enforced",
        "allowed", "gpus", "contexts", "inits", "findings", "coverage"})
    EXPECT_TRUE(json.contains(key)) << key;
  for (const char* key :
       {"index", "uuid", "pci", "name", "allowed", "touched", "contexts", "job_memory_peak_bytes",
        "allocated_peak_bytes", "unexplained_peak_bytes", "memory_min_bytes", "memory_max_bytes",
        "power_mean_w", "power_before_w", "sm_clock_mean_mhz"})
    EXPECT_TRUE(json["gpus"][0].contains(key)) << key;
  for (const char* key :
       {"gpu", "pid", "process", "rank", "thread", "time_s", "ended_s", "call", "stray", "finding",
        "culprit", "python", "python_source", "main_thread", "main_thread_source", "native"})
    EXPECT_TRUE(json["contexts"][0].contains(key)) << key;
  for (const char* key : {"pid", "time_s", "visible_devices", "culprit"})
    EXPECT_TRUE(json["inits"][0].contains(key)) << key;
  for (const char* key :
       {"id", "severity", "gpu", "pid", "title", "evidence", "cause", "verify", "fix"})
    EXPECT_TRUE(json["findings"][0].contains(key)) << key;
  for (const char* key : {"processes", "observed", "unobserved", "records_lost"})
    EXPECT_TRUE(json["coverage"].contains(key)) << key;
  EXPECT_EQ(json["schema"], 1);
  EXPECT_TRUE(json["contexts"][0]["ended_s"].is_null()) << "unknown is null";
}

TEST(json, tells_what_the_processes_recorded) {
  JobRun run = clean_run();
  snapshot::Context context;
  context.tid = 12;
  context.cwd = "/work";
  context.changed_variables = {{"CUDA_VISIBLE_DEVICES", "1"}, {"LOCAL_RANK", std::nullopt}};
  context.stack.python_omitted = 3;
  run.contexts = {context, {}};
  snapshot::Init init;
  init.parent_pid = 4;
  init.argv = {"python3", "train.py"};
  init.rank_variables = {{"RANK", "1"}};
  run.inits = {init, {}};
  run.no_such_devices.resize(1);
  run.no_such_devices[0].ordinal = 7;
  const auto json = nlohmann::json::parse(run_json(run, {}));
  const auto& made = json["contexts"][0];
  EXPECT_EQ(made["tid"], 12);
  EXPECT_EQ(made["cwd"], "/work");
  EXPECT_EQ(made["changed_variables"]["CUDA_VISIBLE_DEVICES"], "1");
  EXPECT_TRUE(made["changed_variables"].at("LOCAL_RANK").is_null());
  EXPECT_EQ(made["python_omitted"], 3);
  EXPECT_TRUE(json["contexts"][1]["tid"].is_null()) << "unknown is null";
  EXPECT_EQ(json["inits"][0]["parent_pid"], 4);
  EXPECT_EQ(json["inits"][0]["argv"].size(), 2U);
  EXPECT_EQ(json["inits"][0]["rank_variables"]["RANK"], "1");
  EXPECT_TRUE(json["inits"][1]["parent_pid"].is_null()) << "unknown is null";
  EXPECT_EQ(json["no_such_devices"][0]["ordinal"], 7);
}

TEST(json, any_bytes_in_a_name_give_valid_json) {
  JobRun run = clean_run();
  run.command = {"\xff\xfe<script>"};
  EXPECT_TRUE(nlohmann::json::accept(run_json(run, {})));
}

TEST(exit_words, names_the_signal) {
  EXPECT_EQ(exit_words({.code = 3, .signal = {}}), "ended with 3");
  EXPECT_EQ(exit_words({.code = {}, .signal = 9}), "was ended by SIGKILL (signal 9)");
}

}  // namespace
}  // namespace corral::report

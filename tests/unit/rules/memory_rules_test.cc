// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "rules/engine.h"

namespace corral::rules {
namespace {

using JobRun = snapshot::Run;
using snapshot::Shortage;

constexpr std::uint64_t kMib = 1ULL << 20;
constexpr std::uint64_t kGib = 1ULL << 30;

// GPU 1 of two, of 141 GiB, was given; pid 7 used it.
JobRun on_gpu_1() {
  JobRun run;
  run.gpus.resize(2);
  run.gpus[1].gpu.index = 1;
  run.gpus[1].gpu.memory_total_bytes = 141 * kGib;
  run.gpus[1].allowed = true;
  run.gpus[1].contexts = 1;
  run.gpus[1].process_list_known = true;
  run.gpus[1].processes = {
      {.pid = 7, .memory_bytes = {}, .allocated_peak_bytes = {}, .of_job = true, .command = "p"}};
  run.confinement.requested = true;
  run.exit.code = 0;
  return run;
}

struct Said {
  std::vector<Finding> findings;
  std::string not_checked;
};

Said said(JobRun run, const std::string& id) {
  Said out;
  const Verdict verdict = judge(run);
  for (const Finding& finding : verdict.findings)
    if (finding.id == id) out.findings.push_back(finding);
  for (const NotChecked& entry : verdict.not_checked)
    if (entry.id == id) out.not_checked = entry.why;
  return out;
}

Shortage cured() {
  return {.gpu = 1,
          .pid = 7,
          .process = "p",
          .time_s = 12.3,
          .call = "cuMemAlloc_v2",
          .bytes = 24 * kGib,
          .held_bytes = 128 * kGib,
          .failures = 1,
          .given_back_bytes = 32 * kGib,
          .culprit = {{.file = "train.py", .line = 42, .function = "step"}}};
}

TEST(memory_fragmented, an_allocation_that_the_caches_end_made_room_for) {
  JobRun run = on_gpu_1();
  run.shortages = {cured()};
  const auto found = said(run, "run.memory-fragmented").findings;
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].title,
            "an allocation of 24.0 GiB of pid 7 on GPU 1 failed until the process had given back "
            "memory that it only kept");
  EXPECT_EQ(found[0].severity, Severity::warning);
  EXPECT_EQ(found[0].evidence,
            std::vector<std::string>{
                "at 12.3 s cuMemAlloc_v2 of 24.0 GiB failed (train.py:42) while the process held "
                "128.0 GiB; after it gave back 32.0 GiB the same size succeeded"});
  EXPECT_NE(found[0].fix.find("--torch-alloc expandable_segments:True"), std::string::npos);
  run.exit.code = 1;
  EXPECT_TRUE(said(run, "run.out-of-memory").findings.empty()) << "that one was given";
}

TEST(memory_fragmented, counts_those_of_one_process_and_shows_the_largest) {
  JobRun run = on_gpu_1();
  run.shortages = {cured(), cured(), cured()};
  run.shortages[1].bytes = 30 * kGib;
  run.shortages[2].pid = 8;
  const auto found = said(run, "run.memory-fragmented").findings;
  ASSERT_EQ(found.size(), 2U);
  EXPECT_TRUE(found[0].title.starts_with("2 allocations of up to 30.0 GiB of pid 7"))
      << found[0].title;
  EXPECT_NE(found[0].evidence[0].find("of 30.0 GiB failed"), std::string::npos);
  EXPECT_EQ(found[1].pid, 8);
}

TEST(memory_fragmented, expandable_segments_are_no_cure_where_they_are_on) {
  JobRun run = on_gpu_1();
  run.shortages = {cured()};
  run.shortages[0].call = "cuMemCreate";
  EXPECT_NE(said(run, "run.memory-fragmented").findings.at(0).fix.find("already"),
            std::string::npos);
  run.shortages.push_back(cured());
  EXPECT_EQ(said(run, "run.memory-fragmented").findings.at(0).fix.find("already"),
            std::string::npos);
}

TEST(memory_fragmented, is_silent_about_what_only_looks_like_it) {
  const auto changed = [](const std::function<void(Shortage&)>& change) {
    JobRun run = on_gpu_1();
    run.shortages = {cured()};
    change(run.shortages[0]);
    return said(run, "run.memory-fragmented").findings.size();
  };
  EXPECT_EQ(changed([](Shortage&) {}), 1U);
  EXPECT_EQ(changed([](Shortage& s) { s.given_back_bytes.reset(); }), 0U) << "plainly too much";
  EXPECT_EQ(changed([](Shortage& s) { s.given_back_bytes = 0; }), 0U) << "somebody else made room";
  EXPECT_EQ(changed([](Shortage& s) { s.failures = 2; }), 0U) << "the program freed its own";
  EXPECT_EQ(changed([](Shortage& s) { s.gpu.reset(); }), 0U);
}

TEST(out_of_memory, a_job_that_failed_is_told_what_it_asked_for_and_had) {
  JobRun run = on_gpu_1();
  run.shortages = {cured()};
  run.shortages[0].given_back_bytes.reset();
  run.shortages[0].failures = 2;
  EXPECT_TRUE(said(run, "run.out-of-memory").findings.empty()) << "the job ended well";
  run.exit.code = 1;
  auto found = said(run, "run.out-of-memory").findings;
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].title,
            "pid 7 was refused 24.0 GiB on GPU 1 (train.py:42): it held 128.0 GiB of 141.0 GiB");
  EXPECT_EQ(found[0].severity, Severity::info);
  EXPECT_EQ(found[0].evidence.front(),
            "cuMemAlloc_v2 answered 2 (out of memory) at 12.3 s, 2 in a row");
  run.gpus[1].processes.push_back({.pid = 9,
                                   .memory_bytes = 90 * kGib,
                                   .allocated_peak_bytes = {},
                                   .of_job = false,
                                   .command = "other"});
  found = said(run, "run.out-of-memory").findings;
  EXPECT_EQ(found.at(0).evidence.at(1), "1 process not of this job was on GPU 1, with 90.0 GiB");
}

TEST(out_of_memory, only_the_last_wish_of_a_process_counts) {
  JobRun run = on_gpu_1();
  run.exit.code = 1;
  run.shortages = {cured(), cured()};
  run.shortages[0].given_back_bytes.reset();
  EXPECT_TRUE(said(run, "run.out-of-memory").findings.empty());
  std::swap(run.shortages[0], run.shortages[1]);
  EXPECT_EQ(said(run, "run.out-of-memory").findings.size(), 1U);
}

// A job of 300 s, read ten times a second as the sampler does.
JobRun with_memory(const std::function<double(double)>& mib_at, double duration_s = 300) {
  JobRun run = on_gpu_1();
  run.duration_s = duration_s;
  for (double t = -1; t < duration_s; t += 0.1)
    run.gpus[1].samples.push_back(
        {.time_s = t,
         .memory_used_bytes = static_cast<std::uint64_t>(std::max(0.0, mib_at(t))) * kMib,
         .power_w = {},
         .sm_clock_mhz = {}});
  return run;
}

bool grows(const std::function<double(double)>& mib_at, double duration_s = 300) {
  return !said(with_memory(mib_at, duration_s), "run.memory-growth").findings.empty();
}

TEST(memory_growth, a_steady_rise_is_told_with_its_rate) {
  const auto found =
      said(with_memory([](double t) { return 20480 + 36 * t; }), "run.memory-growth").findings;
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].gpu, 1U);
  EXPECT_TRUE(
      found[0].title.starts_with("the job's memory on GPU 1 kept rising: from 23.8 GiB at "
                                 "117 s to 29.6 GiB at 283 s"))
      << found[0].title;
  EXPECT_EQ(found[0].evidence.at(1), "126.5 GiB an hour; at that the GPU is full in 0.9 hours");
}

TEST(memory_growth, rises_of_other_shapes_are_growth_too) {
  EXPECT_TRUE(grows([](double t) { return 1000 + 20 * std::floor(t / 2); })) << "in steps";
  EXPECT_TRUE(grows([](double t) { return 1000 + 10 * t + std::fmod(t, 7) * 500; })) << "a saw";
  EXPECT_TRUE(grows([](double t) { return t > 295 ? 600 : 1000 + 10 * t; })) << "gone at the end";
  EXPECT_TRUE(grows([](double t) { return 1000 + t; })) << "slow";
}

TEST(memory_growth, is_silent_about_what_only_looks_like_it) {
  EXPECT_FALSE(grows([](double) { return 20480.0; })) << "level";
  EXPECT_FALSE(grows([](double t) { return std::min(1000 + 200 * t, 20000.0); })) << "warm-up";
  EXPECT_FALSE(grows([](double t) { return std::min(1000 + 100 * t, 20000.0); })) << "long warm-up";
  EXPECT_FALSE(grows([](double t) { return t < 200 ? 1000.0 : 9000.0; })) << "one jump";
  EXPECT_FALSE(grows([](double t) {
    return t < 150 ? 1000.0 : t < 220 ? 5000.0 : 9000.0;
  })) << "two";
  EXPECT_FALSE(grows([](double t) { return 1000 + 2.5 * t + (t > 200 ? 1000 : 0); }))
      << "a jump, most of it";
  EXPECT_FALSE(grows([](double t) {
    return t < 150 ? 1000.0 : t < 265 ? 5000.0 : 9000.0;
  })) << "two, the second late";
  EXPECT_FALSE(grows([](double t) { return 1000 + std::fmod(t, 20) * 400; })) << "a saw";
  EXPECT_FALSE(grows([](double t) { return 1000 + std::fmod(t, 120) * 60; })) << "a slow saw";
  EXPECT_FALSE(grows([](double t) { return 20000 - 19000 * std::exp(-t / 40); })) << "settling";
  EXPECT_FALSE(grows([](double t) { return 9000 - 20 * t; })) << "falling";
  EXPECT_FALSE(grows([](double t) { return 20480 + 0.1 * t; })) << "20 MiB";
  EXPECT_FALSE(grows([](double t) { return 100000 + 5 * t; })) << "one hundredth";
  EXPECT_FALSE(grows([](double t) { return 1000 + 100 * t; }, 50)) << "too short to tell";
}

TEST(memory_growth, too_few_readings_tell_nothing) {
  JobRun run = with_memory([](double t) { return 1000 + 36 * t; });
  std::erase_if(run.gpus[1].samples,
                [](const snapshot::Sample& s) { return std::fmod(s.time_s + 2, 20) > 0.2; });
  EXPECT_TRUE(said(run, "run.memory-growth").findings.empty());
  run = with_memory([](double t) { return 1000 + 36 * t; });
  for (snapshot::Sample& sample : run.gpus[1].samples) sample.memory_used_bytes.reset();
  EXPECT_TRUE(said(run, "run.memory-growth").findings.empty());
}

TEST(memory_growth, memory_that_may_be_somebody_elses_is_not_judged) {
  JobRun run = with_memory([](double t) { return 1000 + 36 * t; });
  run.gpus[1].process_list_known.reset();
  EXPECT_EQ(said(run, "run.memory-growth").not_checked,
            "the memory of GPU 1 rose, and who was there is not known");
  run.gpus[1].process_list_known = true;
  run.gpus[1].processes.push_back({.pid = 9,
                                   .memory_bytes = {},
                                   .allocated_peak_bytes = {},
                                   .of_job = false,
                                   .command = "other"});
  const Said judged = said(run, "run.memory-growth");
  EXPECT_TRUE(judged.findings.empty());
  EXPECT_EQ(judged.not_checked,
            "the memory of GPU 1 rose, and a process that is not of this job was there");
  run.gpus[1].contexts = 0;
  run.gpus[1].processes.erase(run.gpus[1].processes.begin());
  EXPECT_TRUE(said(run, "run.memory-growth").not_checked.empty()) << "not the job's GPU";
}

TEST(memory_growth, of_a_job_whose_processes_come_one_by_one_is_not_judged) {
  JobRun run = with_memory([](double t) { return 1000 + 36 * t; });
  run.contexts.clear();
  for (const double time_s : {1.0, 90.0, 150.0}) {
    snapshot::Context context;
    context.gpu = 1;
    context.pid = 7;  // one process, with further contexts later
    context.time_s = time_s;
    run.contexts.push_back(context);
  }
  EXPECT_EQ(said(run, "run.memory-growth").findings.size(), 1U);
  run.contexts.back().pid = 8;
  const Said judged = said(run, "run.memory-growth");
  EXPECT_TRUE(judged.findings.empty());
  EXPECT_EQ(judged.not_checked,
            "the memory of GPU 1 rose, and processes of the job came to it meanwhile");
}

}  // namespace
}  // namespace corral::rules

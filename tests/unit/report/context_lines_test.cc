// SPDX-License-Identifier: Apache-2.0
#include "report/context_lines.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "report/run_text.h"
#include "rules/expectation.h"

namespace corral::report {
namespace {

using snapshot::Context;
using snapshot::Expectation;
using JobRun = snapshot::Run;

Context context(unsigned gpu, pid_t pid, unsigned line) {
  Context out;
  out.gpu = gpu;
  out.gpu_uuid = "GPU-" + std::to_string(gpu);
  out.pid = pid;
  out.process = "python3 train.py";
  out.time_s = 3.21;
  out.call = "cuDevicePrimaryCtxRetain";
  out.culprit = {.file = "train.py", .line = line, .function = "evaluate"};
  return out;
}

JobRun traced() {
  JobRun run;
  run.traced = true;
  run.command = {"python3", "train.py"};
  run.exit.code = 0;
  for (unsigned i = 0; i < 2; ++i) {
    snapshot::GpuRun& gpu = run.gpus.emplace_back();
    gpu.gpu.index = i;
    gpu.allowed = true;
    gpu.contexts = 0;
  }
  return run;
}

std::string lines(const JobRun& run, TextStyle style = {}) {
  TextWriter writer(run, style);
  context_lines(run, style, writer);
  return writer.take();
}

TEST(context_lines, a_line_names_gpu_process_call_and_culprit) {
  JobRun run = traced();
  run.expectation.kind = Expectation::Kind::gpus;
  run.contexts = {context(0, 4711, 88)};
  run.contexts[0].rank = 3;
  EXPECT_EQ(lines(run),
            "corral: context on GPU 0 at 3.2 s: cuDevicePrimaryCtxRetain called from train.py:88 "
            "in evaluate; pid 4711 (python3 train.py, rank 3)\n");
}

TEST(context_lines, strays_and_refusals_are_marked_and_come_first) {
  JobRun run = traced();
  run.contexts = {context(1, 1, 5), context(0, 1, 6), context(0, 1, 7)};
  run.contexts[1].stray = true;
  run.contexts[2].stray = run.contexts[2].denied = true;
  const std::string text = lines(run);
  EXPECT_LT(text.find("stray context on GPU 0"), text.find("refused a context on GPU 0")) << text;
  EXPECT_LT(text.find("refused a context on GPU 0"), text.find("corral: context on GPU 1")) << text;
}

TEST(context_lines, the_same_author_in_many_processes_takes_one_line) {
  JobRun run = traced();
  for (pid_t pid = 1; pid <= 50; ++pid) run.contexts.push_back(context(0, pid, 88));
  run.contexts.push_back(context(1, 1, 88));
  run.contexts.push_back(context(1, 1, 88));
  const std::string text = lines(run);
  EXPECT_NE(text.find("and the same in 49 more processes"), std::string::npos) << text;
  EXPECT_NE(text.find("GPU 1 at 3.2 s: cuDevicePrimaryCtxRetain called from train.py:88 in "
                      "evaluate; pid 1 (python3 train.py), 2 times"),
            std::string::npos)
      << text;
}

TEST(context_lines, many_authors_are_cut_unless_asked_for) {
  JobRun run = traced();
  for (unsigned line = 1; line <= 100; ++line) run.contexts.push_back(context(0, 1, line));
  EXPECT_LT(std::ranges::count(lines(run), '\n'), 20);
  EXPECT_NE(lines(run).find("88 more lines of this kind"), std::string::npos) << lines(run);
  EXPECT_GE(std::ranges::count(lines(run, {.color = false, .verbose = true}), '\n'), 100);
}

TEST(context_lines, without_an_expectation_it_says_how_to_name_one) {
  JobRun run = traced();
  run.contexts = {context(0, 1, 1)};
  EXPECT_NE(lines(run).find("--expect 1"), std::string::npos);
  run.expectation.kind = Expectation::Kind::rank;
  EXPECT_EQ(lines(run).find("--expect 1"), std::string::npos);
}

TEST(trace_text, claims_no_confinement) {
  JobRun run = traced();
  run.expectation.kind = Expectation::Kind::gpus;
  run.gpus[0].allowed = false;
  run.gpus[0].contexts = 1;
  const std::string text = run_text(run, {}, {});
  EXPECT_NE(text.find("nothing was confined; expected GPU 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("GPU 0 TOUCHED"), std::string::npos) << text;
  EXPECT_NE(text.find("GPU 1 expected"), std::string::npos) << text;
  for (const char* word : {"given", "could not", "ENFORCED", "untouched"})
    EXPECT_EQ(text.find(word), std::string::npos) << word << " in\n" << text;
  run.gpus[0].contexts = 0;
  EXPECT_NE(run_text(run, {}, {}).find("GPU 0 no touch seen"), std::string::npos);
}

TEST(context_lines, nobody_is_said_to_have_found_what_no_hook_saw) {
  JobRun run = traced();
  snapshot::Context context;
  context.gpu = 0;
  context.found = true;
  context.call = "cuDevicePrimaryCtxGetState";
  run.contexts = {context};
  EXPECT_EQ(run_text(run, {}, {}).find("which found it"), std::string::npos);
  run.contexts[0].call = "cuDevicePrimaryCtxRetain";
  run.contexts[0].stack.native = {{.module = "/opt/a.so", .function = "", .offset = 1}};
  EXPECT_NE(run_text(run, {}, {}).find("which found it"), std::string::npos);
}

TEST(trace_text, names_the_processes_that_could_not_be_judged) {
  JobRun run = traced();
  run.expectation.kind = Expectation::Kind::rank;
  rules::Verdict verdict;
  for (int pid = 1; pid <= 10; ++pid)
    verdict.not_checked.push_back(
        {std::string(rules::kExpectRank), "pid " + std::to_string(pid) + ": no rank"});
  const std::string text = run_text(run, verdict, {});
  EXPECT_NE(text.find("not checked: pid 1: no rank"), std::string::npos) << text;
  EXPECT_NE(text.find("and 6 more processes"), std::string::npos) << text;
}

}  // namespace
}  // namespace corral::report

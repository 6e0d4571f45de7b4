// SPDX-License-Identifier: Apache-2.0
// Lines that do not show the call or the device that they gave it: nothing is said of them that
// only a line that was read could tell.
#include <gtest/gtest.h>

#include <algorithm>

#include "recorded_runs.h"
#include "rules/engine.h"

namespace corral::rules {
namespace {

using snapshot::Context;
using snapshot::PythonFrame;
using JobRun = snapshot::Run;

const std::string kTrain = "/home/ana/job/train.py";

PythonFrame own(unsigned line, const std::string& function = "<module>") {
  return {.file = kTrain, .line = line, .function = function};
}

Finding finding_of(const Context& context, const std::string& source) {
  JobRun run = run_for_gpu_1();
  run.contexts = {context};
  if (!source.empty()) run.sources[kTrain] = source;
  Verdict verdict = judge(run);
  EXPECT_EQ(verdict.findings.size(), 1U);
  return verdict.findings.empty() ? Finding{} : verdict.findings.front();
}

bool says(const Finding& finding, const std::string& text) {
  return finding.cause.find(text) != std::string::npos ||
         std::ranges::any_of(finding.evidence, [&](const std::string& line) {
           return line.find(text) != std::string::npos;
         });
}

class Wait : public testing::TestWithParam<const char*> {};

TEST_P(Wait, that_the_line_does_not_show_may_have_been_given_device_0) {
  const Context context = context_on(
      0, {{.file = package("torch/cuda/__init__.py"), .line = 1161, .function = "synchronize"},
          own(1)});
  const Finding finding = finding_of(context, GetParam());
  EXPECT_EQ(finding.id, "stray.sync-default-device");
  EXPECT_TRUE(says(finding, "or what it was given says 0")) << finding.cause;
}
INSTANTIATE_TEST_SUITE_P(unread_line, Wait,
                         testing::Values("", "sync(0)\n", "x = 1; torch.cuda.synchronize(0)\n",
                                         "f(torch.cuda.synchronize(), torch.cuda.synchronize(0))\n",
                                         "torch.cuda.synchronize(); torch.cuda.synchronize(0)\n"));

TEST(unread_line, a_wait_that_is_shown_without_a_device_had_none) {
  const Context context = context_on(
      0, {{.file = package("torch/cuda/__init__.py"), .line = 1161, .function = "synchronize"},
          own(1)});
  EXPECT_FALSE(says(finding_of(context, "torch.cuda.synchronize()\n"), "or what it was given"));
}

TEST(unread_line, a_library_may_have_given_its_wait_a_device) {
  const Context context = context_on(
      0, {{.file = package("torch/cuda/__init__.py"), .line = 1161, .function = "synchronize"},
          {.file = package("timing/clock.py"), .line = 5, .function = "stop"},
          own(1)});
  EXPECT_TRUE(says(finding_of(context, "clock.stop()\n"), "or what it was given says 0"));
}

TEST(unread_line, a_stream_that_the_line_does_not_show_may_have_been_given_device_0) {
  const Context context = context_on(
      0, {{.file = package("torch/cuda/streams.py"), .line = 43, .function = "__new__"}, own(1)});
  EXPECT_TRUE(says(finding_of(context, "s = MyStream(0)\n"), "or what it was given says 0"));
  EXPECT_FALSE(says(finding_of(context, "s = torch.cuda.Stream()\n"), "or what it was given"));
}

TEST(unread_line, a_collective_that_the_line_does_not_show_may_have_named_a_device) {
  const Context context = context_on(0, {{.file = package("torch/distributed/distributed_c10d.py"),
                                          .line = 5030,
                                          .function = "barrier"},
                                         own(1)});
  EXPECT_TRUE(says(finding_of(context, "wait_for_all(0)\n"), "cannot be read from the line"));
  EXPECT_FALSE(says(finding_of(context, "dist.barrier()\n"), "cannot be read from the line"));
}

// Where the device of line `line` was taken from, or "".
std::string device_from(const std::string& source, unsigned line,
                        const std::string& function = "<module>") {
  const Context context =
      context_on(0, {own(line, function)}, {package("torch/lib/libc10_cuda.so")});
  for (const std::string& text : finding_of(context, source).evidence)
    if (text.find("device") != std::string::npos && text.find(" is from ") != std::string::npos)
      return text.substr(text.rfind(':') + 1);
  return "";
}

TEST(device_variable, is_read_where_only_one_line_can_have_set_it) {
  EXPECT_EQ(device_from("device = 'cuda:0'\nx = y.to(device)\n", 2), "1");
  EXPECT_EQ(device_from("device = 'cuda:0'\ndef f():\n  x = y.to(device)\n", 3, "f"), "1");
  EXPECT_EQ(device_from("def f():\n  device = 'cuda:0'\n  x = y.to(device)\n", 3, "f"), "2");
  EXPECT_EQ(device_from("class A:\n def a(self):\n  self.device = 'cuda:0'\n"
                        " def b(self):\n  y.to(self.device)\n",
                        5, "b"),
            "3");
  EXPECT_EQ(device_from("device = 'cuda:0'\nz = [y.to(device) for y in ys]\n", 2), "1");
}

TEST(device_variable, of_another_scope_or_object_or_set_in_two_ways_is_not_taken_for_it) {
  for (const char* source : {
           "def g():\n device = 'cuda:0'\nx = y.to(device)\n",
           "self.device = 'cuda:0'\nz = y.device\nx = torch.ones(3, device=z.device)\n",
           "device = 'cuda:0'\nz = 1\nx = torch.ones(3, device=pick())\n",
           "device = 'cuda:0'\nfor device in all: pass\nx = y.to(device)\n",
           "device = 'cuda:0'\ndevice, n = pick()\nx = y.to(device)\n",
           "device = 'cuda:0'\nif (device := pick()): pass\nx = y.to(device)\n",
           "device = 'cuda:0'\nwith pick() as device: pass\nx = y.to(device)\n",
           "device = 'cuda:0'\nfrom settings import device\nx = y.to(device)\n",
       })
    EXPECT_EQ(device_from(source, 3), "") << source;
  EXPECT_EQ(device_from("device = 'cuda:0'\ndef f(device):\n x = y.to(device)\n", 3, "f"), "");
}

}  // namespace
}  // namespace corral::rules

// SPDX-License-Identifier: Apache-2.0
#include "rules/context_words.h"

#include <gtest/gtest.h>

#include <utility>

namespace corral::rules {
namespace {

TEST(origin, says_the_main_threads_line_did_not_call) {
  snapshot::Context context;
  context.call = "cuDevicePrimaryCtxRetain";
  context.culprit = snapshot::PythonFrame{.file = "job.py", .line = 6, .function = "start"};
  EXPECT_EQ(origin(context), "cuDevicePrimaryCtxRetain called from job.py:6 in start");
  context.thread = "pt_data_pin";
  context.stack.main_thread = {*context.culprit};
  EXPECT_EQ(origin(context),
            "cuDevicePrimaryCtxRetain on thread pt_data_pin, while the main thread was at "
            "job.py:6 in start");
}

TEST(origin, adds_the_main_threads_line_where_the_calls_own_has_none_of_the_user) {
  snapshot::Context context;
  context.call = "cuDevicePrimaryCtxRetain";
  context.stack.native = {{.module = "/opt/xla.so", .function = "", .offset = 1}};
  context.stack.main_thread = {{.file = "job.py", .line = 14, .function = "main"}};
  EXPECT_EQ(origin(context),
            "cuDevicePrimaryCtxRetain called from /opt/xla.so+0x1; the main thread was at "
            "job.py:14 in main");
}

TEST(origin, does_not_say_that_a_line_called_which_is_in_none_of_the_stacks) {
  snapshot::Context context;
  context.call = "cuDevicePrimaryCtxRetain";
  context.thread = "tf_worker";
  context.stack.native = {{.module = "/opt/xla.so", .function = "", .offset = 1}};
  const snapshot::PythonFrame start{.file = "job.py", .line = 3, .function = "<module>"};
  EXPECT_EQ(
      origin(context, start),
      "cuDevicePrimaryCtxRetain on thread tf_worker, which goes back to job.py:3 in <module>");
  context.stack.python = {start};
  EXPECT_EQ(origin(context, start), "cuDevicePrimaryCtxRetain called from job.py:3 in <module>");
  context.stack = {};
  context.found = true;
  EXPECT_EQ(origin(context, start), "made in a way that no hook saw");
}

TEST(stack_words, are_the_innermost_frames_of_both_kinds) {
  snapshot::Context context;
  for (unsigned line = 1; line <= 20; ++line) {
    context.stack.python.push_back({.file = "job.py", .line = line, .function = "f"});
    context.stack.native.push_back({.module = line % 2 ? "" : "/opt/a.so",
                                    .function = line == 2 ? "run()" : "",
                                    .offset = line});
  }
  const auto lines = stack_words(context);
  ASSERT_EQ(lines.size(), 16U);
  EXPECT_EQ(lines[0], "at job.py:1 in f");
  EXPECT_EQ(lines[7], "at job.py:8 in f");
  EXPECT_EQ(lines[8], "by run() in /opt/a.so");
  EXPECT_EQ(lines[9], "by +0x4 in /opt/a.so");
}

TEST(origin, does_not_call_the_finding_of_a_context_its_making) {
  snapshot::Context context;
  context.call = "cuDevicePrimaryCtxGetState";
  context.found = true;
  EXPECT_EQ(origin(context), "made in a way that no hook saw");
}

TEST(origin, names_the_native_function_where_there_is_no_python) {
  snapshot::Context context;
  context.call = "cuCtxCreate_v4";
  context.stack.native = {{}, {.module = "/opt/app", .function = "", .offset = 0x12}};
  EXPECT_EQ(origin(context), "cuCtxCreate_v4 called from /opt/app+0x12");
  context.stack.native[1].function = "run(int)";
  EXPECT_EQ(origin(context), "cuCtxCreate_v4 called from run(int) in /opt/app");
}

TEST(context_words, the_name_of_a_call_cannot_command_the_terminal) {
  snapshot::Context context;
  context.call = "cu\x1b[31m";
  EXPECT_EQ(origin(context).find('\x1b'), std::string::npos) << "a trace is the job's to write";
  context.culprit = {.file = "/job/train.py", .line = 1, .function = "f"};
  EXPECT_EQ(origin(context).find('\x1b'), std::string::npos);
  context.stack.python = {*context.culprit};
  EXPECT_EQ(origin(context).find('\x1b'), std::string::npos);
  context.stack.main_thread = std::exchange(context.stack.python, {});
  EXPECT_EQ(origin(context).find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace corral::rules

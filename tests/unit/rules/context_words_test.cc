// SPDX-License-Identifier: Apache-2.0
#include "rules/context_words.h"

#include <gtest/gtest.h>

namespace corral::rules {
namespace {

TEST(origin, says_the_main_threads_line_did_not_call) {
  snapshot::Context context;
  context.call = "cuDevicePrimaryCtxRetain";
  context.culprit = snapshot::PythonFrame{.file = "job.py", .line = 6, .function = "start"};
  EXPECT_EQ(origin(context), "cuDevicePrimaryCtxRetain called from job.py:6 in start");
  context.stack.of_main_thread = true;
  EXPECT_EQ(origin(context),
            "cuDevicePrimaryCtxRetain on a thread without Python, while the main thread was at "
            "job.py:6 in start");
}

TEST(origin, names_the_native_function_where_there_is_no_python) {
  snapshot::Context context;
  context.call = "cuCtxCreate_v4";
  context.stack.native = {{}, {.module = "/opt/app", .function = "", .offset = 0x12}};
  EXPECT_EQ(origin(context), "cuCtxCreate_v4 called from /opt/app+0x12");
  context.stack.native[1].function = "run(int)";
  EXPECT_EQ(origin(context), "cuCtxCreate_v4 called from run(int) in /opt/app");
}

}  // namespace
}  // namespace corral::rules

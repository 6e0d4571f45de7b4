// SPDX-License-Identifier: Apache-2.0
// Fault injection by environment variable.
#include "fault.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace corral::sim {
namespace {

class FaultText : public testing::Test {
 protected:
  void read(const char* text) {
    setenv("SIM_TEST_FAULT", text, 1);
    faults_.read("SIM_TEST_FAULT");
  }
  ~FaultText() override { unsetenv("SIM_TEST_FAULT"); }

  Faults faults_;
};

TEST_F(FaultText, names_a_function_on_every_gpu) {
  read("nvmlDeviceGetMemoryInfo=15,nvmlInit_v2=9");
  EXPECT_EQ(faults_.code("nvmlDeviceGetMemoryInfo", 0), 15);
  EXPECT_EQ(faults_.code("nvmlDeviceGetMemoryInfo", 7), 15);
  EXPECT_EQ(faults_.code("nvmlInit_v2", -1), 9);
  EXPECT_EQ(faults_.code("nvmlDeviceGetMemoryInfo_v2", 0), 0);
}

TEST_F(FaultText, can_be_of_one_gpu) {
  read("nvmlDeviceGetHandleByIndex_v2#1=4");
  EXPECT_EQ(faults_.code("nvmlDeviceGetHandleByIndex_v2", 0), 0);
  EXPECT_EQ(faults_.code("nvmlDeviceGetHandleByIndex_v2", 1), 4);
  EXPECT_EQ(faults_.code("nvmlDeviceGetHandleByIndex_v2", -1), 0);
}

TEST_F(FaultText, can_begin_after_calls_that_work) {
  read("f#0=15@2");
  EXPECT_EQ(faults_.code("f", 1), 0);
  EXPECT_EQ(faults_.code("f", 0), 0);
  EXPECT_EQ(faults_.code("f", 0), 0);
  EXPECT_EQ(faults_.code("f", 0), 15);
  EXPECT_EQ(faults_.code("f", 0), 15);
}

TEST_F(FaultText, ignores_what_it_cannot_read) {
  read(",=,f,,g=3,");
  EXPECT_EQ(faults_.code("f", 0), 0);
  EXPECT_EQ(faults_.code("g", 0), 3);
}

}  // namespace
}  // namespace corral::sim

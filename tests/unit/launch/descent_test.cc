// SPDX-License-Identifier: Apache-2.0
// Whose processes are whose, on made-up hosts.
#include "launch/descent.h"

#include <gtest/gtest.h>

#include "../host/fixture_host.h"

namespace corral::launch {
namespace {

class DescentTest : public testing::Test {
 protected:
  void add(pid_t pid, pid_t parent, int start = 1) {
    host_.write("/proc/" + std::to_string(pid) + "/stat",
                std::to_string(pid) + " (x) S " + std::to_string(parent) +
                    " 1 1 0 -1 0 1 0 0 0 5 6 0 0 20 0 1 0 " + std::to_string(start) + " 1 1\n");
  }
  Descent of(pid_t pid, pid_t self, const std::vector<host::ProcessStat>& earlier = {}) {
    return descent_of(host_.root(), pid, self, earlier);
  }

  tests::MadeHost host_;
};

using descent = DescentTest;

TEST_F(descent, below_this_process_is_the_job) {
  add(1, 0);
  add(100, 1);
  add(101, 100);
  add(102, 101);
  add(200, 1);
  EXPECT_EQ(of(100, 100), Descent::job);
  EXPECT_EQ(of(102, 100), Descent::job);
  EXPECT_EQ(of(200, 100), Descent::elsewhere);
  EXPECT_EQ(of(300, 100), Descent::elsewhere);
  EXPECT_EQ(of(0, 100), Descent::elsewhere) << "a sender outside the pid namespace";
}

TEST_F(descent, the_job_of_the_first_process_is_its_own) {
  add(1, 0);
  add(101, 1);
  EXPECT_EQ(of(101, 1), Descent::job);
  EXPECT_EQ(of(0, 1), Descent::elsewhere);
}

TEST_F(descent, what_was_there_before_is_not_the_jobs_nor_is_what_it_starts) {
  add(100, 1);
  add(101, 100);
  add(102, 101);
  const auto earlier = processes_below(host_.root(), 100);
  EXPECT_EQ(earlier.size(), 2U);
  add(103, 102);
  add(104, 100);
  EXPECT_EQ(of(101, 100, earlier), Descent::earlier);
  EXPECT_EQ(of(103, 100, earlier), Descent::earlier);
  EXPECT_EQ(of(104, 100, earlier), Descent::job);
  add(102, 100);  // adopted: its parent has ended
  EXPECT_EQ(of(102, 100, earlier), Descent::earlier);
}

TEST_F(descent, a_pid_that_comes_again_is_another_process) {
  add(100, 1);
  add(101, 100, 1);
  const auto earlier = processes_below(host_.root(), 100);
  add(101, 100, 2);
  EXPECT_EQ(of(101, 100, earlier), Descent::job);
}

TEST_F(descent, a_ring_of_parents_is_nobodys_job) {
  add(101, 102);
  add(102, 101);
  EXPECT_EQ(of(101, 100), Descent::elsewhere);
}

}  // namespace
}  // namespace corral::launch

// SPDX-License-Identifier: Apache-2.0
// The driver's reading of CUDA_VISIBLE_DEVICES, value by value as measured on driver 580.
#include "visible.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace corral::sim {
namespace {

constexpr const char* kFirst = "GPU-2a4d0660-db8e-67f0-3142-37ccd2d5b25c";
constexpr const char* kSecond = "GPU-2b685718-e7c6-a661-f4b0-04f71feb86c0";

struct Expected {
  const char* text;  // nullptr: unset
  std::vector<unsigned> gpus;
  int error = 0;
};

std::ostream& operator<<(std::ostream& out, const Expected& expected) {
  return out << (expected.text == nullptr ? "(unset)" : expected.text);
}

// Two whole GPUs in bus order.
std::unique_ptr<State> two_gpus() {
  auto state = std::make_unique<State>();
  state->gpu_count = 2;
  std::strcpy(state->gpus[0].uuid, kFirst);
  std::strcpy(state->gpus[1].uuid, kSecond);
  return state;
}

VisibleList all_of(const State& state) {
  VisibleList list;
  for (unsigned i = 0; i < state.gpu_count; ++i) {
    if (state.gpus[i].mig_count == 0) list.device[list.count++] = {.gpu = i, .mig = -1};
    for (unsigned m = 0; m < state.gpus[i].mig_count; ++m) {
      list.device[list.count++] = {.gpu = i, .mig = static_cast<int>(m)};
    }
  }
  return list;
}

std::vector<unsigned> gpus_of(const VisibleList& list) {
  std::vector<unsigned> gpus;
  for (unsigned i = 0; i < list.count; ++i) gpus.push_back(list.device[i].gpu);
  return gpus;
}

class Values : public testing::TestWithParam<Expected> {};

TEST_P(Values, are_read_as_the_driver_reads_them) {
  const auto state = two_gpus();
  const VisibleList list = visible_devices(*state, all_of(*state), GetParam().text);
  EXPECT_EQ(gpus_of(list), GetParam().gpus);
  EXPECT_EQ(list.error, GetParam().error);
}

INSTANTIATE_TEST_SUITE_P(
    numbers, Values,
    testing::Values(Expected{nullptr, {0, 1}}, Expected{"", {}, 100}, Expected{"0", {0}},
                    Expected{"1", {1}}, Expected{"1,0", {1, 0}}, Expected{"0,-1,1", {0}},
                    Expected{"-1", {}, 100}, Expected{"-1,0", {}, 100}, Expected{"1,9,0", {1}},
                    Expected{"9", {}, 100}, Expected{"0,0", {}, 101}, Expected{"0,1,0", {}, 101},
                    Expected{" 1", {1}}, Expected{"1 ", {1}}, Expected{"0, 1", {0, 1}},
                    Expected{"1;0", {1}}, Expected{"0 1", {0}}, Expected{"1gpu,0x", {1, 0}},
                    Expected{"one,0", {}, 100}, Expected{"0,one", {0}}, Expected{"0,,1", {0}},
                    Expected{",0", {}, 100}, Expected{"+1", {1}}, Expected{"-0", {0}},
                    Expected{"00", {0}}, Expected{"0-1", {0}}, Expected{"0:1", {0}},
                    Expected{"0x1", {0}}, Expected{"99999999999999999999", {}, 100}));

INSTANTIATE_TEST_SUITE_P(words, Values,
                         testing::Values(Expected{"all", {}, 100}, Expected{"none", {}, 100},
                                         Expected{"NoDevFiles", {}, 100}));

INSTANTIATE_TEST_SUITE_P(
    uuids, Values,
    testing::Values(Expected{kSecond, {1}}, Expected{"GPU-2b685718", {1}}, Expected{"GPU-2b", {1}},
                    Expected{"GPU-2", {}, 100}, Expected{"GPU-", {}, 100},
                    Expected{"GPU-2b685718-e7c6-a661-f4b0-04f71feb86c0,0", {1}},
                    Expected{"0,GPU-2b685718-e7c6-a661-f4b0-04f71feb86c0", {0}},
                    Expected{"2b685718-e7c6-a661-f4b0-04f71feb86c0", {}, 100},
                    Expected{"GPU-2B685718-E7C6-A661-F4B0-04F71FEB86C0", {1}},
                    Expected{"GPU-2b685718-e7c6-a661-f4b0-04f71feb86c0 ", {1}},
                    Expected{"GPU-2b685718,GPU-2b685718-e7c6", {}, 101},
                    Expected{"GPU-2b,GPU-2a", {1, 0}}, Expected{"GPU-2b,GPU-ffff,GPU-2a", {1}},
                    Expected{"GPU-2b685718-e7c6-a661-f4b0-04f71feb86c0ff", {}, 100}));

TEST(visible, numbers_count_only_what_may_be_opened) {
  const auto state = two_gpus();
  VisibleList only_second;
  only_second.device[only_second.count++] = {.gpu = 1, .mig = -1};
  EXPECT_EQ(gpus_of(visible_devices(*state, only_second, "0")), std::vector<unsigned>{1});
  EXPECT_EQ(visible_devices(*state, only_second, "1").error, 100);
  EXPECT_EQ(gpus_of(visible_devices(*state, only_second, kSecond)), std::vector<unsigned>{1});
  EXPECT_EQ(visible_devices(*state, only_second, kFirst).error, 100);
  // A prefix that was ambiguous is not when one of the two is hidden.
  EXPECT_EQ(gpus_of(visible_devices(*state, only_second, "GPU-2")), std::vector<unsigned>{1});
}

TEST(visible, nothing_to_open_is_no_device) {
  const auto state = two_gpus();
  EXPECT_EQ(visible_devices(*state, VisibleList{}, nullptr).error, 100);
  EXPECT_EQ(visible_devices(*state, VisibleList{}, "0").error, 100);
}

class Mig : public testing::Test {
 protected:
  Mig() {
    state_->gpus[0].mig_enabled = 1;
    state_->gpus[0].mig_count = 2;
    std::strcpy(state_->gpus[0].mig[0].uuid, "MIG-3f1c0e5a-7b28-5d94-a6e1-82c4d0b97f10");
    std::strcpy(state_->gpus[0].mig[1].uuid, "MIG-9a6d47e2-10c3-5fb8-b705-e3d1562c8a21");
    state_->gpus[0].mig[0].gpu_instance = 2;
    state_->gpus[0].mig[1].gpu_instance = 3;
  }
  VisibleList read(const char* text) { return visible_devices(*state_, all_of(*state_), text); }

  std::unique_ptr<State> state_ = two_gpus();
};

TEST_F(Mig, a_process_gets_one_instance_by_its_uuid) {
  const VisibleList list = read("MIG-9a6d47e2-10c3-5fb8-b705-e3d1562c8a21,0");
  ASSERT_EQ(list.count, 1U);
  EXPECT_EQ(list.device[0].gpu, 0U);
  EXPECT_EQ(list.device[0].mig, 1);
}

TEST_F(Mig, the_older_form_names_gpu_and_instances) {
  const VisibleList list = read("MIG-GPU-2a4d0660-db8e-67f0-3142-37ccd2d5b25c/3/0");
  ASSERT_EQ(list.count, 1U);
  EXPECT_EQ(list.device[0].mig, 1);
  EXPECT_EQ(read("MIG-GPU-2a4d0660-db8e-67f0-3142-37ccd2d5b25c/5/0").error, 100);
}

TEST_F(Mig, without_a_choice_whole_gpus_come_first) {
  EXPECT_EQ(gpus_of(read(nullptr)), std::vector<unsigned>{1});
  state_->gpu_count = 1;
  const VisibleList list = read(nullptr);
  ASSERT_EQ(list.count, 1U);
  EXPECT_EQ(list.device[0].mig, 0);
}

TEST_F(Mig, an_unknown_or_ambiguous_instance_is_no_device) {
  EXPECT_EQ(read("MIG-ffffffff").error, 100);
  EXPECT_EQ(read("MIG-").error, 100);
}

}  // namespace
}  // namespace corral::sim

// SPDX-License-Identifier: Apache-2.0
// Profiles: those we ship, and what a wrong one says.
#include "profile.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/file.h"

namespace corral::sim {
namespace {

Profile shipped(const std::string& name) {
  const auto text = read_file(std::string(SIM_PROFILES) + "/" + name + ".json");
  EXPECT_TRUE(text) << text.error().what;
  auto profile = parse_profile(*text);
  EXPECT_TRUE(profile) << profile.error().what;
  return *std::move(profile);
}

std::string error_of(const std::string& text) {
  const auto profile = parse_profile(text);
  return profile ? "" : profile.error().what;
}

TEST(profile, h200x2_has_the_numbers_of_the_capture) {
  const Profile profile = shipped("h200x2");
  ASSERT_EQ(profile.state->gpu_count, 2U);
  const Gpu& gpu = profile.state->gpus[1];
  EXPECT_STREQ(gpu.name, "NVIDIA H200");
  EXPECT_STREQ(gpu.uuid, "GPU-2b685718-e7c6-a661-f4b0-04f71feb86c0");
  EXPECT_EQ(gpu.pci_device, 7U);
  EXPECT_EQ(gpu.memory_bytes, 143771 * kMiB);
  EXPECT_EQ(gpu.reserved_bytes, 616 * kMiB);
  EXPECT_EQ(gpu.context_bytes, 518 * kMiB);
  EXPECT_EQ(gpu.context_mw, 118000U);
  EXPECT_EQ(gpu.idle_mhz, 345U);
  EXPECT_FALSE(profile.host[1].drm_card.has_value());
}

TEST(profile, h100x8_minors_are_a_permutation_that_is_not_the_bus_order) {
  const Profile profile = shipped("h100x8");
  ASSERT_EQ(profile.state->gpu_count, 8U);
  std::set<unsigned> minors, nodes;
  for (unsigned i = 0; i < 8; ++i) {
    EXPECT_NE(profile.state->gpus[i].minor, i);
    minors.insert(profile.state->gpus[i].minor);
    nodes.insert(static_cast<unsigned>(profile.host[i].numa_node));
    EXPECT_TRUE(profile.host[i].drm_render.has_value());
  }
  EXPECT_EQ(minors, (std::set<unsigned>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(nodes, (std::set<unsigned>{0, 1}));
}

TEST(profile, a100mig_numbers_capabilities_as_the_driver_does) {
  const Profile profile = shipped("a100mig");
  const Gpu& gpu = profile.state->gpus[0];
  ASSERT_EQ(gpu.mig_count, 3U);
  EXPECT_EQ(gpu.mig[0].gpu_capability_minor, 21U);  // gpu0/gi2
  EXPECT_EQ(gpu.mig[0].compute_capability_minor, 22U);
  EXPECT_FALSE(profile.state->gpus[1].mig_enabled);
}

TEST(profile, a_wrong_field_is_named_with_its_gpu) {
  const auto text = read_file(std::string(SIM_PROFILES) + "/h200x2.json");
  ASSERT_TRUE(text);
  std::string wrong = *text;
  wrong.replace(wrong.find("\"minor\": 1"), 10, "\"minor\": \"1\"");
  EXPECT_EQ(error_of(wrong), "GPU 1: field \"minor\" must be a number");
}

TEST(profile, text_that_is_no_profile_is_refused) {
  EXPECT_FALSE(error_of("").empty());
  EXPECT_FALSE(error_of("[]").empty());
  EXPECT_FALSE(error_of("{}").empty());
  EXPECT_FALSE(error_of(R"({"gpus": [1]})").empty());
  EXPECT_FALSE(error_of(R"({"gpus": [], "each_gpu": 3})").empty());
}

TEST(profile, gpus_out_of_bus_order_are_refused) {
  const auto text = read_file(std::string(SIM_PROFILES) + "/h200x2.json");
  ASSERT_TRUE(text);
  std::string wrong = *text;
  wrong.replace(wrong.find("00:06.0"), 7, "00:09.0");
  EXPECT_NE(error_of(wrong).find("PCI address"), std::string::npos);
}

TEST(profile, a_machine_without_gpus_is_a_machine) {
  const auto profile = parse_profile(
      R"({"driver_version": "1", "nvml_version": "1", "cuda_version": 1, "decay_s": 1, "gpus": []})");
  ASSERT_TRUE(profile) << profile.error().what;
  EXPECT_EQ(profile->state->gpu_count, 0U);
}

}  // namespace
}  // namespace corral::sim

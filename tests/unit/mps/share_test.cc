// SPDX-License-Identifier: Apache-2.0
// What --mps takes, and what the variables of a client say.
#include "mps/share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corral::mps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint64_t kGib = 1ULL << 30;

TEST(mps_share, is_a_percentage_with_or_without_its_sign) {
  EXPECT_EQ(*parse_share("30%"), (Share{.percent = 30, .memory_bytes = {}}));
  EXPECT_EQ(*parse_share("30"), (Share{.percent = 30, .memory_bytes = {}}));
  EXPECT_EQ(*parse_share("12.5%"), (Share{.percent = 12.5, .memory_bytes = {}}));
  EXPECT_EQ(*parse_share("100%"), (Share{.percent = 100, .memory_bytes = {}}));
}

TEST(mps_share, may_limit_the_memory) {
  EXPECT_EQ(*parse_share("30%,8G"), (Share{.percent = 30, .memory_bytes = 8 * kGib}));
  EXPECT_EQ(parse_share("30,1536M")->memory_bytes, 3 * kGib / 2);
}

TEST(mps_share, counts_memory_in_whole_mib_as_the_driver_takes_it) {
  EXPECT_EQ(parse_share("30%,8388609")->memory_bytes, 8U << 20);
}

TEST(mps_share, names_what_is_wrong) {
  for (const char* text : {"", "0", "0%", "-1", "101%", "nan", "inf", "30%%", "%", "x", "3 0",
                           ",8G", "1e400", "30 %"}) {
    const auto share = parse_share(text);
    ASSERT_FALSE(share) << text;
    EXPECT_THAT(share.error().what, HasSubstr("is not a percentage")) << text;
    EXPECT_THAT(share.error().what, HasSubstr(std::string("--mps ") + text)) << text;
  }
  for (const char* text : {"30%,", "30%,5X", "30%,-1G", "30%,0", "30%,8G,9G"}) {
    const auto share = parse_share(text);
    ASSERT_FALSE(share) << text;
    EXPECT_THAT(share.error().what, HasSubstr("--mps \"")) << text;
  }
}

TEST(mps_share, becomes_the_variables_of_a_client) {
  EXPECT_THAT(client_settings({.percent = 12.5, .memory_bytes = 8 * kGib}, "/p", "/l"),
              ElementsAre(isolate::Setting{"CUDA_MPS_PIPE_DIRECTORY", "/p"},
                          isolate::Setting{"CUDA_MPS_LOG_DIRECTORY", "/l"},
                          isolate::Setting{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "12.5"},
                          isolate::Setting{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=8192M"}));
}

TEST(mps_share, without_memory_leaves_the_callers_own_limit_alone) {
  for (const isolate::Setting& setting :
       client_settings({.percent = 50, .memory_bytes = {}}, "/p", "/l"))
    EXPECT_NE(setting.name, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
}

TEST(mps_share, reads_a_clients_variables_as_the_driver_does) {
  EXPECT_EQ(percent_of("30"), 30);
  EXPECT_EQ(percent_of("0.5"), 0.5);
  for (const char* text : {"", "0", "-3", "300", "30%", "x"})
    EXPECT_EQ(percent_of(text), std::nullopt) << text;
  EXPECT_EQ(percent_of(std::nullopt), std::nullopt);
  EXPECT_EQ(memory_limit_of("0=8G"), 8 * kGib);
  EXPECT_EQ(memory_limit_of("1=4G,0=512M"), kGib / 2);
  for (const char* text :
       {"", "1=4G", "GPU-1234=4G", "0=", "0=4", "0=G", "0=-4G", "0=4X", "0=99999999999999999999G"})
    EXPECT_EQ(memory_limit_of(text), std::nullopt) << text;
}

}  // namespace
}  // namespace corral::mps

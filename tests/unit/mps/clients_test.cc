// SPDX-License-Identifier: Apache-2.0
// Sums over the clients of a server.
#include "mps/clients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/file.h"

namespace corral::mps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kGib = 1ULL << 30;

Client limited(double percent, std::optional<std::uint64_t> memory = {}) {
  return {.pid = 1,
          .server = 2,
          .command = "",
          .limits_known = true,
          .percent = percent,
          .memory_bytes = memory};
}

Client without_limit() {
  return {.pid = 1,
          .server = 2,
          .command = "",
          .limits_known = true,
          .percent = {},
          .memory_bytes = {}};
}

TEST(mps_sum, adds_up_what_clients_may_take) {
  const Sum sum = sum_of({limited(30, 8 * kGib), limited(50), without_limit(), Client{}});
  EXPECT_EQ(sum, (Sum{.clients = 4,
                      .unlimited = 1,
                      .memory_unlimited = 2,
                      .unknown = 1,
                      .percent = 80,
                      .memory_bytes = 8 * kGib}));
}

TEST(mps_sum, in_words_says_when_it_is_not_that_of_all) {
  EXPECT_EQ(sum_text(sum_of({limited(30, 8 * kGib), limited(30, 8 * kGib)})), "60 %, 16384 MiB");
  EXPECT_EQ(sum_text(sum_of({limited(33.3), limited(33.3)})), "66.6 %");
  for (const Client& other : {without_limit(), Client{}, limited(0)})
    EXPECT_THAT(sum_text(sum_of({limited(30, 8 * kGib), other})),
                "30 %, 8192 MiB, of the limits that are there and can be read");
}

TEST(mps_sum, that_fits_is_not_spoken_of) {
  EXPECT_THAT(overcommitment({}, 80 * kGib), IsEmpty());
  EXPECT_THAT(overcommitment(sum_of({limited(50), limited(50)}), 80 * kGib), IsEmpty());
  EXPECT_THAT(
      overcommitment(sum_of({limited(33.3), limited(33.3), limited(33.3), limited(0.1)}), {}),
      IsEmpty());
  EXPECT_THAT(overcommitment(sum_of({without_limit()}), {}), IsEmpty());
  EXPECT_THAT(overcommitment(sum_of({Client{}, Client{}}), {}), IsEmpty());
  EXPECT_THAT(overcommitment(sum_of({limited(50, 200 * kGib)}), {}), IsEmpty());
}

TEST(mps_sum, that_is_more_than_there_is_is) {
  EXPECT_THAT(overcommitment(sum_of({limited(60), limited(60)}), {}),
              ElementsAre(HasSubstr("120 % of the multiprocessors")));
  EXPECT_THAT(overcommitment(sum_of({limited(30), without_limit()}), {}),
              ElementsAre(HasSubstr("1 of 2 clients has no limit")));
  EXPECT_THAT(overcommitment(sum_of({limited(10, 60 * kGib), limited(10, 60 * kGib)}), 80 * kGib),
              ElementsAre(HasSubstr("122880 MiB together, and the GPU has 81920 MiB")));
}

class MpsClients : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "corral-mps-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void process(pid_t pid, std::string_view environment) {
    const std::string folder = root_ + "/proc/" + std::to_string(pid);
    std::filesystem::create_directories(folder);
    ASSERT_TRUE(write_file(folder + "/cmdline", std::string_view("python3\0train.py\0", 17)));
    ASSERT_TRUE(write_file(folder + "/environ", environment));
  }
  std::string root_;
};

TEST_F(MpsClients, are_described_by_their_own_variables) {
  using namespace std::string_view_literals;
  process(
      10,
      "A=1\0CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30\0CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=8192M\0"sv);
  process(11, "A=1\0"sv);
  const Serving serving{.dialect = Dialect::legacy,
                        .servers = {{.pid = 5, .name = {}, .status = {}, .clients = {10, 11, 12}}}};
  const auto clients = clients_of(host::Root(root_), serving);
  ASSERT_EQ(clients.size(), 3U);
  EXPECT_EQ(clients[0].command, "python3 train.py");
  EXPECT_EQ(clients[0].server, 5);
  EXPECT_EQ(clients[0].percent, 30);
  EXPECT_EQ(clients[0].memory_bytes, 8 * kGib);
  EXPECT_TRUE(clients[1].limits_known);
  EXPECT_EQ(clients[1].percent, std::nullopt);
  EXPECT_FALSE(clients[2].limits_known);  // gone, or another user's
  process(12, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=GPU-1234=2G\0"sv);
  EXPECT_FALSE(clients_of(host::Root(root_), serving)[2].limits_known);
  EXPECT_EQ(clients[2].command, "");
}

}  // namespace
}  // namespace corral::mps

// SPDX-License-Identifier: Apache-2.0
#include "shim/pointer_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace corral::shim {
namespace {

using Addresses = PointerTable<1024, place_of_address>;
using Handles = PointerTable<1024, place_of_handle>;

TEST(pointer_table, gives_back_once_what_was_put_in) {
  auto table = std::make_unique<Handles>();
  std::uint64_t value = 0;
  EXPECT_FALSE(table->take(42, value));
  EXPECT_TRUE(table->insert(42, 7));
  EXPECT_TRUE(table->find(42, value));
  EXPECT_EQ(value, 7U);
  EXPECT_TRUE(table->take(42, value));
  EXPECT_FALSE(table->take(42, value));
  EXPECT_FALSE(table->find(42, value));
}

TEST(pointer_table, finds_a_key_behind_one_that_was_removed) {
  auto table = std::make_unique<Addresses>();
  std::uint64_t value = 0;
  // The same place for all three.
  const std::uint64_t keys[] = {0x100, 0x101, 0x102};
  for (const std::uint64_t key : keys) EXPECT_TRUE(table->insert(key, key + 1));
  EXPECT_TRUE(table->take(keys[0], value));
  EXPECT_TRUE(table->take(keys[2], value));
  EXPECT_EQ(value, keys[2] + 1);
}

TEST(pointer_table, says_when_there_is_no_room) {
  auto table = std::make_unique<Addresses>();
  int in = 0;
  while (in < 2000 && table->insert(0x100 + static_cast<std::uint64_t>(in) % 256, 1)) ++in;
  EXPECT_EQ(in, 64);
}

TEST(pointer_table, addresses_at_usual_distances_have_places_of_their_own) {
  for (const std::uint64_t distance : {512ULL, 4096ULL, 1ULL << 20, 2ULL << 20, 20ULL << 20}) {
    std::set<std::size_t> places;
    for (std::uint64_t i = 0; i < 10000; ++i)
      places.insert(place_of_address(0x7f4000000000 + i * distance) & ((1U << 18) - 1));
    EXPECT_GT(places.size(), 9000U) << distance;
  }
}

TEST(pointer_table, threads_get_their_own_keys_back) {
  auto table = std::make_unique<PointerTable<1U << 14, place_of_address>>();
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t round = 0; round < 2000; ++round) {
        for (std::uint64_t i = 0; i < 32; ++i)
          EXPECT_TRUE(table->insert(0x700000000000 + (thread * 32 + i) * 512, thread * 1000 + i));
        for (std::uint64_t i = 0; i < 32; ++i) {
          std::uint64_t value = 0;
          EXPECT_TRUE(table->take(0x700000000000 + (thread * 32 + i) * 512, value));
          EXPECT_EQ(value, thread * 1000 + i);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace corral::shim

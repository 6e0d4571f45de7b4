// SPDX-License-Identifier: Apache-2.0
#include "host/library_path.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "base/file.h"

namespace corral::host {
namespace {

void put_u32(std::string& bytes, std::uint32_t value) {
  bytes.append(reinterpret_cast<char*>(&value), 4);
}

// A loader cache with these entries: flags, name, path.
struct CacheEntry {
  std::uint32_t flags;
  std::string name;
  std::string path;
};
std::string cache_of(const std::vector<CacheEntry>& entries, const std::string& before = "") {
  std::string texts;
  std::string table;
  const std::size_t texts_at = 48 + entries.size() * 24;
  for (const CacheEntry& entry : entries) {
    put_u32(table, entry.flags);
    put_u32(table, static_cast<std::uint32_t>(texts_at + texts.size()));
    texts += entry.name + '\0';
    put_u32(table, static_cast<std::uint32_t>(texts_at + texts.size()));
    texts += entry.path + '\0';
    table.append(12, '\0');
  }
  std::string head = "glibc-ld.so.cache1.1";
  put_u32(head, static_cast<std::uint32_t>(entries.size()));
  put_u32(head, static_cast<std::uint32_t>(texts.size()));
  head.append(48 - head.size(), '\0');
  return before + head + table + texts;
}

constexpr std::uint32_t kNative =
#if defined(__aarch64__)
    0x0a03;
#else
    0x0303;
#endif

TEST(loader_cache, finds_every_path_of_this_architecture_in_order) {
  const std::string cache = cache_of({{0x0003, "libcuda.so.1", "/lib32/libcuda.so.1"},
                                      {kNative, "libcuda.so.1", "/a/libcuda.so.1"},
                                      {kNative, "libcuda.so", "/a/libcuda.so"},
                                      {kNative, "libcuda.so.1", "/b/libcuda.so.1"}});
  EXPECT_EQ(find_in_loader_cache(cache, "libcuda.so.1"),
            (std::vector<std::string>{"/a/libcuda.so.1", "/b/libcuda.so.1"}));
}

TEST(loader_cache, an_old_format_table_may_come_first) {
  const std::string cache = cache_of({{kNative, "libx.so", "/x/libx.so"}}, "ld.so-1.7.0 old table");
  EXPECT_EQ(find_in_loader_cache(cache, "libx.so"), std::vector<std::string>{"/x/libx.so"});
}

TEST(loader_cache, a_damaged_one_never_reads_past_its_end) {
  const std::string cache = cache_of({{kNative, "libx.so", "/x/libx.so"}});
  for (std::size_t size = 0; size < cache.size(); ++size)
    (void)find_in_loader_cache(std::string_view(cache).substr(0, size), "libx.so");
  std::string huge = cache;
  std::memset(huge.data() + 20, 0xff, 4);  // four billion entries
  EXPECT_EQ(find_in_loader_cache(huge, "libx.so"), std::vector<std::string>{"/x/libx.so"});
}

TEST(find_library, the_live_cache_knows_libc) {
  const auto path = find_library(Root(), "libc.so.6", "");
  ASSERT_TRUE(path);
  EXPECT_TRUE(std::filesystem::exists(*path));
}

TEST(find_library, the_library_path_wins_and_empty_fields_are_not_the_current_folder) {
  char name[] = "/tmp/corral-test-XXXXXX";
  const std::string folder = ::mkdtemp(name);
  ASSERT_TRUE(write_file(folder + "/libc.so.6", ""));
  EXPECT_EQ(find_library(Root(), "libc.so.6", "::/nowhere:" + folder), folder + "/libc.so.6");
  std::filesystem::remove_all(folder);
}

TEST(find_library, nothing_is_nothing) {
  EXPECT_EQ(find_library(Root(), "libnot-there.so.99", ""), std::nullopt);
}

}  // namespace
}  // namespace corral::host

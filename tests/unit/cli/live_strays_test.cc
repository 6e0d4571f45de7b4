// SPDX-License-Identifier: Apache-2.0
#include "cli/live_strays.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "../trace/trace_bytes.h"

namespace corral::cli {
namespace {

namespace wire = corral::wire;
using trace::device_id;
using trace::TraceBytes;

constexpr std::int64_t kStart = 50'000'000'000;

// GPU 0 has the UUID aa… and is not expected, GPU 1 bb… is.
class live_strays : public testing::Test {
 protected:
  live_strays() {
    std::string pattern = testing::TempDir() + "liveXXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    run_.traced = true;
    run_.expectation.kind = snapshot::Expectation::Kind::gpus;
    run_.gpus.resize(2);
    run_.gpus[0].gpu.uuid = "GPU-aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
    run_.gpus[1].gpu.uuid = "GPU-bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb";
    run_.gpus[1].gpu.index = 1;
    run_.gpus[1].allowed = true;
  }
  ~live_strays() override { std::filesystem::remove_all(folder_); }

  void write() { std::ofstream(folder_ + "/1.trace") << bytes_.bytes; }

  std::string folder_;
  snapshot::Run run_;
  TraceBytes bytes_;
};

TEST_F(live_strays, each_is_told_once) {
  LiveStrays live(folder_, run_, kStart);
  bytes_.context(wire::kContextMade, device_id(1, 0xBB), 1);
  write();
  EXPECT_EQ(live.look(), "") << "where it is expected";
  bytes_.context(wire::kContextMade, device_id(0, 0xAA), 2);
  write();
  const std::string line = live.look();
  EXPECT_TRUE(line.starts_with("corral: 2.0 s: pid 4711 made a context on GPU 0: ")) << line;
  EXPECT_EQ(std::ranges::count(line, '\n'), 1);
  EXPECT_EQ(live.look(), "");
}

TEST_F(live_strays, what_the_process_told_itself_is_not_told_again) {
  LiveStrays live(folder_, run_, kStart);
  bytes_.context(wire::kContextMade, device_id(0, 0xAA), 0, [](trace::RecordBuilder&) {},
                 {.result = 46, .flags = wire::kContextDenied});
  write();
  EXPECT_EQ(live.look(), "");
}

TEST_F(live_strays, a_flood_ends_in_one_line) {
  LiveStrays live(folder_, run_, kStart);
  for (unsigned i = 0; i < 3 * LiveStrays::kMaxLines; ++i)
    bytes_.context(wire::kContextMade, device_id(0, 0xAA), i + 1);
  write();
  const std::string lines = live.look();
  EXPECT_EQ(std::ranges::count(lines, '\n'), LiveStrays::kMaxLines + 1);
  EXPECT_TRUE(lines.ends_with("more strays follow: see the report\n"));
  bytes_.context(wire::kContextMade, device_id(0, 0xAA), 999);
  write();
  EXPECT_EQ(live.look(), "");
}

}  // namespace
}  // namespace corral::cli

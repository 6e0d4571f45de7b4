// SPDX-License-Identifier: Apache-2.0
// What the two dialects of nvidia-cuda-mps-control answer.
#include "mps/control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "base/file.h"

namespace corral::mps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A folder with a program of these lines of shell in it.
class FakeProgram {
 public:
  explicit FakeProgram(const std::string& lines) {
    std::string name = "/tmp/corral-mps-control-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    EXPECT_TRUE(write_file(path(), "#!/bin/sh\n" + lines + "\n"));
    EXPECT_EQ(::chmod(path().c_str(), 0755), 0);
  }
  ~FakeProgram() { std::filesystem::remove_all(folder_); }
  FakeProgram(const FakeProgram&) = delete;
  FakeProgram& operator=(const FakeProgram&) = delete;
  std::string path() const { return folder_ + "/program"; }

  std::string error(std::chrono::milliseconds patience) const {
    const auto serving = ask_what_it_serves(path(), folder_, patience);
    return serving ? "" : serving.error().what;
  }

 private:
  std::string folder_;
};

TEST(mps_control, an_answer_without_end_is_left) {
  const FakeProgram floods("exec cat /dev/zero");
  EXPECT_THAT(floods.error(std::chrono::seconds(20)), HasSubstr("more than 1 MiB"));
}

TEST(mps_control, a_program_that_closes_its_output_and_stays_is_left) {
  const FakeProgram stays("exec >&- 2>&-; exec sleep 1000");
  EXPECT_THAT(stays.error(std::chrono::milliseconds(200)), HasSubstr("within 200 ms"));
}

TEST(mps_control, of_an_answer_that_is_none_the_beginning_is_told) {
  const FakeProgram talks("head -c 5000 /dev/zero | tr '\\0' x");
  const std::string said = talks.error(std::chrono::seconds(20));
  EXPECT_THAT(said, HasSubstr("xxxx"));
  EXPECT_LT(said.size(), 400U);
}

TEST(mps_control, legacy_pids_stand_a_line) {
  EXPECT_THAT(*parse_pids("645\n"), ElementsAre(645));
  EXPECT_THAT(*parse_pids("645\n 1352 \r\n"), ElementsAre(645, 1352));
  EXPECT_THAT(*parse_pids(""), IsEmpty());
}

TEST(mps_control, what_is_no_pid_is_no_list) {
  for (const char* text : {"Cannot find MPS control daemon process\n", "Unknown command \"x\"", "0",
                           "-3", "1 2", "645\nx"})
    EXPECT_FALSE(parse_pids(text)) << text;
}

TEST(mps_control, v3_servers_are_read_by_the_names_of_the_columns) {
  const auto servers = parse_v3_servers(
      "name,uid,pid,status,pipe-directory,allowed-devices,context-ids\n"
      "training,1000,48201,Ready,/run/nvidia-mps/training,GPU-abcd-1234,-\n"
      "later,0,-,Created,/run/nvidia-mps/later,all,-\n");
  ASSERT_TRUE(servers);
  EXPECT_THAT(*servers, ElementsAre(Server{48201, "training", "Ready", {}},
                                    Server{0, "later", "Created", {}}));
  // Another order, and columns that are not known.
  EXPECT_THAT(*parse_v3_servers("New, PID ,Status,NAME\nx,7,Ready,one\n"),
              ElementsAre(Server{7, "one", "Ready", {}}));
}

TEST(mps_control, v3_without_a_server_still_has_its_head_line) {
  EXPECT_THAT(*parse_v3_servers("name,uid,pid,status\n"), IsEmpty());
  // What a legacy daemon, and an old program that reads nothing, say to the same question.
  EXPECT_FALSE(parse_v3_servers("Unknown command \"server\"\n"));
  EXPECT_FALSE(parse_v3_servers(""));
  EXPECT_FALSE(parse_v3_servers("name,uid,pid,status\nshort,1\n"));
}

TEST(mps_control, v3_clients_may_have_commas_in_their_commands) {
  EXPECT_THAT(*parse_v3_clients("51023,training,0,default,python train.py --a=1,2\n"
                                "51087,training,0,high,python eval.py\n51087,training,1,high,x\n"),
              ElementsAre(51023, 51087));
  EXPECT_THAT(*parse_v3_clients(""), IsEmpty());
  EXPECT_FALSE(parse_v3_clients("no such server\n"));
}

}  // namespace
}  // namespace corral::mps

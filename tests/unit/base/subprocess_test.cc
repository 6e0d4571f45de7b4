// SPDX-License-Identifier: Apache-2.0
// Programs that are asked: what comes back, and what is left of those that do not answer.
#include "base/subprocess.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cerrno>
#include <fstream>

#include "base/text.h"

namespace corral {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

Result<Answer> ask_shell(const std::string& script, const std::string& input = "",
                         std::chrono::milliseconds patience = 10s) {
  return ask_program(
      {.words = {"sh", "-c", script}, .environment = own_environment(), .input = input}, patience);
}

TEST(subprocess, gives_what_it_said_and_how_it_ended) {
  const auto answer = ask_shell("cat; echo two >&2; exit 3", "one\n");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->text, "one\ntwo\n");
  EXPECT_EQ(answer->exit_code, 3);
}

TEST(subprocess, that_a_signal_ended_has_no_code) {
  EXPECT_EQ(ask_shell("kill -9 $$")->exit_code, -1);
}

TEST(subprocess, that_is_not_there_ends_with_127) {
  const auto answer = ask_program({.words = {"no-such-program-of-corral"}, .environment = {}}, 10s);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->exit_code, 127);
}

TEST(subprocess, has_the_environment_that_it_is_given) {
  const auto answer =
      ask_program({.words = {"/bin/sh", "-c", "echo $ONE-$HOME-"}, .environment = {"ONE=1"}}, 10s);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->text, "1--\n");
}

bool lives(std::string_view pid) { return ::kill(*parse_number<pid_t>(pid), 0) == 0; }

TEST(subprocess, that_does_not_answer_is_killed_with_what_it_started) {
  const std::string file = ::testing::TempDir() + "corral-subprocess-pid";
  const auto answer = ask_shell("sleep 60 & echo $! > " + file + "; wait", "", 300ms);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().what, "did not answer within 300 ms");
  std::string pid;
  std::ifstream(file) >> pid;
  for (int i = 0; i < 500 && lives(pid); ++i) ::usleep(10'000);
  // Its new parent may leave it a zombie for ever.
  std::ifstream stat("/proc/" + pid + "/stat");
  std::string whole((std::istreambuf_iterator<char>(stat)), {});
  EXPECT_TRUE(whole.empty() || whole.find(") Z ") != whole.npos) << whole;
}

TEST(subprocess, that_closes_its_output_and_lives_on_is_waited_for_no_longer) {
  const auto answer = ask_shell("exec >/dev/null 2>&1; sleep 60", "", 300ms);
  ASSERT_FALSE(answer);
  EXPECT_THAT(answer.error().what, HasSubstr("did not answer"));
}

TEST(subprocess, that_says_too_much_is_ended) {
  const auto answer = ask_shell("yes");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().what, "gave an answer of more than 1 MiB");
}

}  // namespace
}  // namespace corral

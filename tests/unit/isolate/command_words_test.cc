// SPDX-License-Identifier: Apache-2.0
// Commands behind other programs and in a shell's text.
#include "isolate/command_words.h"

#include <gtest/gtest.h>

#include <random>

#include "base/text.h"

namespace corral::isolate {
namespace {

// "docker run x; podman" for two commands.
std::string flat(const std::vector<Words>& commands) {
  std::vector<std::string> texts;
  for (const Words& command : commands) texts.push_back(join(command, " "));
  return join(texts, "; ");
}

std::string within(const Words& argv) { return flat(commands_within(argv)); }
std::string in_shell(std::string_view text) { return flat(shell_commands(text)); }

TEST(command_words, a_plain_command_is_itself) {
  EXPECT_EQ(within({"python3", "train.py", "docker"}), "python3 train.py docker");
  EXPECT_EQ(within({}), "");
  EXPECT_EQ(within({""}), "");
}

TEST(command_words, wrappers_are_looked_behind) {
  const Words cases[] = {
      {"env", "X=1", "docker", "run"},
      {"env", "-i", "-u", "HOME", "A=1", "B=2", "docker", "run"},
      {"env", "--unset=HOME", "--chdir", "/tmp", "docker", "run"},
      {"env", "-S", "A=1 docker run"},
      {"sudo", "docker", "run"},
      {"/usr/bin/sudo", "-nEu", "root", "--", "docker", "run"},
      {"sudo", "--user=root", "X=1", "docker", "run"},
      {"nice", "-n", "5", "docker", "run"},
      {"nice", "-n5", "docker", "run"},
      {"timeout", "-k", "5", "1h", "docker", "run"},
      {"timeout", "--signal", "INT", "60", "docker", "run"},
      {"taskset", "-c", "0-3", "docker", "run"},
      {"numactl", "-N", "0", "--membind", "0", "docker", "run"},
      {"numactl", "--cpunodebind=0", "docker", "run"},
      {"stdbuf", "-oL", "docker", "run"},
      {"nohup", "setsid", "-w", "time", "-f", "%e", "docker", "run"},
      {"ionice", "-c", "3", "docker", "run"},
      {"chrt", "-b", "0", "docker", "run"},
      {"setpriv", "--reuid", "1", "--clear-groups", "docker", "run"},
      {"corral", "run", "--gpus", "1", "--", "docker", "run"},
      {"bash", "-c", "docker run"},
      {"/bin/sh", "-ec", "docker run"},
      {"bash", "-l", "-c", "docker run", "name", "argument"},
      {"bash", "-o", "pipefail", "-c", "docker run"},
      {"bash", "--norc", "-c", "exec docker run"},
      {"su", "-", "user", "-c", "docker run"},
      {"runuser", "-u", "user", "--", "docker", "run"},
      {"env", "sudo", "sh", "-c", "nice docker run"},
  };
  for (const Words& argv : cases) EXPECT_EQ(within(argv), "docker run") << join(argv, " ");
}

TEST(command_words, a_wrapper_without_a_command_is_itself) {
  EXPECT_EQ(within({"env"}), "env");
  EXPECT_EQ(within({"sudo", "-l"}), "sudo -l");
  EXPECT_EQ(within({"bash"}), "bash");
  EXPECT_EQ(within({"bash", "-c"}), "bash -c");
  EXPECT_EQ(within({"bash", "train.sh", "-c", "docker"}), "bash train.sh -c docker");
}

TEST(command_words, a_shells_text_is_split_into_commands) {
  EXPECT_EQ(in_shell("cd /a && docker run x | tee log"), "cd /a; docker run x; tee log");
  EXPECT_EQ(in_shell("a;b&c||d\ne"), "a; b; c; d; e");
  EXPECT_EQ(in_shell("(cd x; docker ps)"), "cd x; docker ps");
  EXPECT_EQ(in_shell("a # docker run\nb"), "a; b");
  EXPECT_EQ(in_shell("a\\\n b"), "a b");
  EXPECT_EQ(in_shell(""), "");
}

TEST(command_words, quotes_are_taken_off) {
  const auto commands = shell_commands(R"(docker run --gpus '"device=0,1"' "a b" "c\"d" e\ f "")");
  ASSERT_EQ(commands.size(), 1U);
  EXPECT_EQ(commands[0],
            (Words{"docker", "run", "--gpus", "\"device=0,1\"", "a b", "c\"d", "e f", ""}));
}

TEST(command_words, redirections_are_no_words) {
  EXPECT_EQ(in_shell("docker run x >log 2>&1"), "docker run x");
  EXPECT_EQ(in_shell("docker run x 2> log y &>all"), "docker run x y");
  EXPECT_EQ(in_shell("docker run < in; b"), "docker run; b");
}

TEST(command_words, a_substitution_has_commands_of_its_own) {
  EXPECT_EQ(in_shell("x=$(docker run a) b"), "docker run a; x=$() b");
  EXPECT_EQ(in_shell("echo \"$(docker run a)\""), "docker run a; echo $()");
  EXPECT_EQ(in_shell("echo `docker run a`"), "echo; docker run a");
}

TEST(command_words, nothing_is_read_behind_a_here_document) {
  EXPECT_EQ(in_shell("cat <<EOF\ndocker run\nEOF"), "cat");
}

TEST(command_words, keywords_stand_before_commands) {
  EXPECT_EQ(within({"sh", "-c", "if true; then docker run; fi"}), "true; docker run; fi");
  EXPECT_EQ(within({"sh", "-c", "for i in 1 2; do X=1 docker run; done"}),
            "for i in 1 2; docker run; done");
}

TEST(command_words, commands_in_commands_end_somewhere) {
  Words argv;
  for (int i = 0; i < 100; ++i) argv.emplace_back("env");
  argv.emplace_back("docker");
  EXPECT_FALSE(commands_within(argv).empty());
  std::string text = "docker";
  for (int i = 0; i < 100; ++i) text = "$(" + text + ")";
  EXPECT_FALSE(shell_commands(text).empty());
}

TEST(command_words, any_text_is_good) {
  constexpr std::string_view kParts[] = {"'",  "\"", "\\", "$(", ")", "`",    ";",
                                         "&",  "|",  "<",  "<<", ">", "#",    " ",
                                         "\n", "a",  "=",  "{",  "!", "\xff", "docker"};
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (auto n = random() % 24; n > 0; --n) text += kParts[random() % std::size(kParts)];
    for (const Words& command : shell_commands(text)) EXPECT_FALSE(command.empty());
    commands_within({"env", "-S", text});
    commands_within({"bash", text, "-c", text});
  }
}

}  // namespace
}  // namespace corral::isolate

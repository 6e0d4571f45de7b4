// SPDX-License-Identifier: Apache-2.0
// Every form in which a container engine is asked for a GPU.
#include "isolate/container_options.h"

#include <gtest/gtest.h>

#include <random>

#include "base/text.h"

namespace corral::isolate {
namespace {

using Kind = GpusOption::Kind;

std::string list(const std::vector<std::string>& words) { return join(words, " "); }

TEST(gpus_option, all_and_a_count) {
  EXPECT_EQ(parse_gpus_option("all").kind, Kind::all);
  EXPECT_EQ(parse_gpus_option("count=all").kind, Kind::all);
  EXPECT_EQ(parse_gpus_option("-1").kind, Kind::all);
  for (const std::string_view value : {"2", "count=2", "driver=nvidia,count=2",
                                       "2,capabilities=utility", "2,\"capabilities=a,b\""}) {
    EXPECT_EQ(parse_gpus_option(value).kind, Kind::count) << value;
    EXPECT_EQ(parse_gpus_option(value).count, 2U) << value;
  }
  EXPECT_EQ(parse_gpus_option("capabilities=utility").count, 1U);  // docker's default
}

TEST(gpus_option, devices_by_number_and_uuid) {
  EXPECT_EQ(list(parse_gpus_option("device=1").devices), "1");
  EXPECT_EQ(list(parse_gpus_option("device=GPU-2b68").devices), "GPU-2b68");
  EXPECT_EQ(list(parse_gpus_option("\"device=0,1\"").devices), "0 1");
  EXPECT_EQ(list(parse_gpus_option("\"device=GPU-a,MIG-b\"").devices), "GPU-a MIG-b");
  EXPECT_EQ(list(parse_gpus_option("\"device=0,1\",capabilities=utility").devices), "0 1");
}

TEST(gpus_option, the_missing_inner_quotes_are_an_error_of_dockers) {
  for (const std::string_view value : {"device=0,1", "device=0,GPU-2b68"}) {
    EXPECT_EQ(parse_gpus_option(value).kind, Kind::refused) << value;
    EXPECT_NE(parse_gpus_option(value).why.find("quotes of its own"), std::string::npos);
  }
}

TEST(gpus_option, what_docker_refuses_is_told) {
  for (const std::string_view value : {"\"device=0", "\"device=0\"x", "de\"vice=0", "gpu", "",
                                       "count=x", "1,2", "device=0,count=1", "devices=0"})
    EXPECT_EQ(parse_gpus_option(value).kind, Kind::refused) << value;
}

TEST(gpus_option, a_variable_of_the_shell_is_not_read) {
  EXPECT_EQ(parse_gpus_option("device=$GPU").kind, Kind::not_read);
  EXPECT_EQ(parse_gpus_option("\"device=$()\"").kind, Kind::not_read);
}

TEST(container_command, the_verb_is_found_behind_global_options) {
  const Words cases[] = {{"run"},
                         {"container", "run"},
                         {"-D", "run"},
                         {"--config", "x", "run"},
                         {"--log-level=debug", "run"},
                         {"-l", "debug", "run"},
                         {"--context", "default", "run"},
                         {"-H", "unix:///run/user/1/docker.sock", "run"}};
  for (const Words& words : cases) {
    EXPECT_EQ(parse_container_command(words).verb, "run") << list(words);
    EXPECT_FALSE(parse_container_command(words).remote) << list(words);
  }
  EXPECT_EQ(parse_container_command({}).verb, "");
  EXPECT_EQ(parse_container_command({"--version"}).verb, "");
  EXPECT_EQ(parse_container_command({"buildx", "build", "."}).verb, "build");
  EXPECT_EQ(parse_container_command({"compose", "up"}).verb, "compose");
}

TEST(container_command, another_hosts_engine_is_told) {
  const Words cases[] = {{"-H", "ssh://gpu2", "run"},    {"-Htcp://gpu2:2375", "run"},
                         {"--host=ssh://gpu2", "run"},   {"--context", "gpu2", "run"},
                         {"-c", "gpu2", "run"},          {"--remote", "run"},
                         {"--connection", "gpu2", "run"}};
  for (const Words& words : cases) {
    EXPECT_TRUE(parse_container_command(words).remote) << list(words);
    EXPECT_EQ(parse_container_command(words).verb, "run") << list(words);
  }
}

TEST(container_command, options_end_at_the_image) {
  const auto command = parse_container_command(
      {"run", "--rm", "-it", "--name", "x", "-e", "A=1", "image", "--gpus", "all", "--privileged"});
  EXPECT_TRUE(command.complete);
  EXPECT_TRUE(command.gpus.empty());
  EXPECT_EQ(command.opens_everything, "");
}

TEST(container_command, gpus_may_be_given_in_every_way) {
  const Words cases[] = {{"run", "--gpus", "all", "image"},
                         {"run", "--gpus=all", "image"},
                         {"run", "-itd", "--gpus", "all", "image"},
                         {"create", "-p8080:80", "-v", "/data:/data", "--gpus", "all", "image"},
                         {"run", "--gpus", "all", "--from-the-future", "image"}};
  for (const Words& words : cases) {
    ASSERT_EQ(parse_container_command(words).gpus.size(), 1U) << list(words);
    EXPECT_EQ(parse_container_command(words).gpus[0].kind, Kind::all);
  }
}

TEST(container_command, behind_an_unknown_option_nothing_is_read) {
  const auto command = parse_container_command({"run", "--from-the-future", "x", "--gpus", "all"});
  EXPECT_FALSE(command.complete);
  EXPECT_TRUE(command.gpus.empty());
  EXPECT_FALSE(parse_container_command({"run", "-Z", "image"}).complete);
}

TEST(container_command, cdi_names_and_nodes_are_devices) {
  const auto command = parse_container_command({"run", "--device", "nvidia.com/gpu=all",
                                                "--device=nvidia.com/gpu=GPU-2b68", "--device",
                                                "/dev/nvidia0:/dev/nvidia0:rw", "image"});
  EXPECT_EQ(list(command.cdi), "nvidia.com/gpu=all nvidia.com/gpu=GPU-2b68");
  EXPECT_EQ(list(command.nodes), "/dev/nvidia0");
}

TEST(container_command, the_variable_of_the_runtime) {
  const auto set = parse_container_command(
      {"run", "--runtime=nvidia", "-e", "NVIDIA_VISIBLE_DEVICES=0,1", "image"});
  EXPECT_EQ(set.visible_devices, "0,1");
  EXPECT_EQ(parse_container_command({"run", "-eNVIDIA_VISIBLE_DEVICES=all", "i"}).visible_devices,
            "all");
  EXPECT_EQ(parse_container_command({"run", "--env=NVIDIA_VISIBLE_DEVICES=", "i"}).visible_devices,
            "");
  const auto passed = parse_container_command({"run", "-e", "NVIDIA_VISIBLE_DEVICES", "image"});
  EXPECT_TRUE(passed.passes_visible_devices);
  EXPECT_FALSE(passed.visible_devices);
  EXPECT_FALSE(
      parse_container_command({"run", "-e", "NVIDIA_VISIBLE_DEVICES_X=1", "i"}).visible_devices);
}

TEST(container_command, what_opens_every_device_is_told) {
  const std::pair<Words, const char*> cases[] = {
      {{"run", "--privileged", "i"}, "--privileged"},
      {{"run", "--privileged=true", "i"}, "--privileged"},
      {{"run", "--privileged=false", "i"}, ""},
      {{"run", "-v", "/dev:/dev", "i"}, "-v /dev"},
      {{"run", "--volume=/dev:/host-dev:ro", "i"}, "-v /dev"},
      {{"run", "--mount", "type=bind,source=/dev,target=/dev", "i"}, "--mount of /dev"},
      {{"run", "--device", "/dev", "i"}, "--device /dev"},
      {{"run", "-v", "/dev/shm:/dev/shm", "i"}, ""},
      {{"exec", "--privileged", "c"}, "--privileged"}};
  for (const auto& [words, option] : cases)
    EXPECT_EQ(parse_container_command(words).opens_everything, option) << list(words);
}

TEST(container_command, any_words_are_good) {
  constexpr std::string_view kParts[] = {"run",
                                         "-",
                                         "--",
                                         "-e",
                                         "--gpus",
                                         "--gpus=",
                                         "device=",
                                         "\"",
                                         ",",
                                         "",
                                         "-itd",
                                         "-e=",
                                         "--device",
                                         "nvidia.com/gpu=",
                                         "NVIDIA_VISIBLE_DEVICES",
                                         "--privileged=",
                                         "\xff",
                                         "-H",
                                         "="};
  std::mt19937 random(2);
  for (int i = 0; i < 20000; ++i) {
    Words words;
    for (auto n = random() % 9; n > 0; --n) {
      std::string word(kParts[random() % std::size(kParts)]);
      if (random() % 3 == 0) word += kParts[random() % std::size(kParts)];
      words.push_back(std::move(word));
    }
    parse_container_command(words);
    parse_gpus_option(join(words, ","));
  }
}

}  // namespace
}  // namespace corral::isolate

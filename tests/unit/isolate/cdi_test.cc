// SPDX-License-Identifier: Apache-2.0
// CDI specifications as toolkits write them, and those of which nothing is taken.
#include "isolate/cdi.h"

#include <gtest/gtest.h>

#include <random>

#include "../host/fixture_host.h"

namespace corral::isolate {
namespace {

using Devices = std::vector<CdiDevice>;

// The order of nvidia-ctk: keys by their names, so the name comes last.
constexpr std::string_view kToolkit = R"(---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  - path: /dev/nvidia-uvm
  hooks:
  - args:
    - nvidia-ctk
    hookName: createContainer
    path: /usr/bin/nvidia-ctk
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
    - hostPath: /dev/dri/card1
      path: /dev/dri/card0
    hooks:
    - args:
      - --link
      path: /usr/bin/nvidia-ctk
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia1
  name: "1"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia1
  name: GPU-1aaa
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
    - path: /dev/nvidia1
  name: all
kind: nvidia.com/gpu
)";

constexpr std::string_view kByHand = R"(# ours
cdiVersion: "0.6.0"
kind: "nvidia.com/gpu"
devices:
  - name: gpu1
    containerEdits:
      deviceNodes:
        - path: /dev/nvidia1
      mounts:
        - hostPath: /dev/nvidia0
          containerPath: /x
)";

gpu::Gpu gpu_at(unsigned number, std::string prefix = "") {
  gpu::Gpu gpu;
  gpu.index = number;
  gpu.uuid = "GPU-" + std::to_string(number) + "aaa";
  gpu.node = std::move(prefix) + "/dev/nvidia" + std::to_string(number);
  return gpu;
}

TEST(cdi, the_toolkits_yaml_is_read) {
  EXPECT_EQ(parse_cdi_yaml(kToolkit),
            (Devices{{"nvidia.com/gpu=0", {"/dev/nvidia0", "/dev/dri/card1"}},
                     {"nvidia.com/gpu=1", {"/dev/nvidia1"}},
                     {"nvidia.com/gpu=GPU-1aaa", {"/dev/nvidia1"}},
                     {"nvidia.com/gpu=all", {"/dev/nvidia0", "/dev/nvidia1"}}}));
}

TEST(cdi, yaml_by_hand_is_read_and_mounts_are_no_nodes) {
  EXPECT_EQ(parse_cdi_yaml(kByHand), (Devices{{"nvidia.com/gpu=gpu1", {"/dev/nvidia1"}}}));
}

TEST(cdi, json_is_read) {
  EXPECT_EQ(parse_cdi_json(R"({"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","devices":[
      {"name":"0","containerEdits":{"deviceNodes":[{"path":"/dev/nvidia0"},
                                    {"path":"/dev/x","hostPath":"/dev/dri/card1"}]}},
      {"name":"none","containerEdits":{}}]})"),
            (Devices{{"nvidia.com/gpu=0", {"/dev/nvidia0", "/dev/dri/card1"}},
                     {"nvidia.com/gpu=none", {}}}));
}

constexpr const char* kFlow = R"(kind: nvidia.com/gpu
devices:
- containerEdits:
    deviceNodes:
    - {path: /dev/nvidia0}
  name: b
)";

TEST(cdi, nothing_is_taken_of_what_is_not_understood) {
  for (const std::string_view text :
       {"kind: nvidia.com/gpu\ndevices: [{name: a}]\n",
        "kind: nvidia.com/gpu\ndevices:\n- name: &a x\n  containerEdits:\n    deviceNodes: []\n",
        "kind: nvidia.com/gpu\ndevices:\n- {name: a}\n",
        "kind: nvidia.com/gpu\ndevices:\n\t- name: a\n",
        "devices:\n- name: a\n  containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia0\n",
        kFlow, "", "name: x\n", "- - a\n"})
    EXPECT_TRUE(parse_cdi_yaml(text).empty()) << text;
  for (const std::string_view text :
       {"", "{", "[]", "{\"kind\":1}", R"({"kind":"a/b","devices":{}})",
        R"({"kind":"a/b","devices":[1]})",
        R"({"kind":"a/b","devices":[{"name":"x","containerEdits":{"deviceNodes":[1]}}]})"})
    EXPECT_TRUE(parse_cdi_json(text).empty()) << text;
}

TEST(cdi, the_name_of_a_gpu_brings_no_other_and_has_its_uuid_if_there_is_one) {
  const Devices devices = parse_cdi_yaml(kToolkit);
  EXPECT_EQ(cdi_name(devices, gpu_at(0)), "nvidia.com/gpu=0");
  EXPECT_EQ(cdi_name(devices, gpu_at(1)), "nvidia.com/gpu=GPU-1aaa");
  EXPECT_FALSE(cdi_name(devices, gpu_at(2)));
  EXPECT_FALSE(cdi_name(devices, gpu::Gpu{}));
}

TEST(cdi, both_folders_are_read_and_the_second_one_holds) {
  const tests::MadeHost host;
  host.write("/etc/cdi/nvidia.yaml", kByHand);
  host.write("/etc/cdi/broken.json", "{");
  host.write("/etc/cdi/README", kToolkit);
  host.write_unreadable("/etc/cdi/folder.yaml");
  host.write("/var/run/cdi/a.json",
             R"({"kind":"nvidia.com/gpu","devices":[{"name":"gpu1","containerEdits":
                {"deviceNodes":[{"path":"/dev/nvidia2"}]}}]})");
  const Devices devices = read_cdi(host.root());
  ASSERT_EQ(devices.size(), 1U);
  EXPECT_EQ(cdi_name(devices, gpu_at(2, host.root().prefix())), "nvidia.com/gpu=gpu1");
  EXPECT_TRUE(read_cdi(host::Root("/does/not/exist")).empty());
}

TEST(cdi, any_text_is_good) {
  constexpr std::string_view kParts[] = {"kind: ", "devices:",     "\n",           "- ", "  ",
                                         "name: ", "path: ",       "deviceNodes:", "\"", "x",
                                         "{",      "/dev/nvidia0", "---",          ":"};
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) {
    std::string text = "kind: a/b\ndevices:\n";
    for (auto n = random() % 20; n > 0; --n) text += kParts[random() % std::size(kParts)];
    parse_cdi_yaml(text);
    parse_cdi_json(text);
  }
}

}  // namespace
}  // namespace corral::isolate

// SPDX-License-Identifier: Apache-2.0
// The names under which container engines know devices: CDI specifications, version 0.3 to 1.1
// (tags.cncf.io/container-device-interface).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/device.h"
#include "host/root.h"

namespace corral::isolate {

struct CdiDevice {
  std::string name;                // "nvidia.com/gpu=0"
  std::vector<std::string> nodes;  // device nodes of the host that it brings: "/dev/nvidia0"

  bool operator==(const CdiDevice&) const = default;
};

// The devices of one specification in JSON, or in YAML as the generators of NVIDIA's toolkit and of
// Kubernetes plugins write it: block style, two keys never in one line. Of any other YAML nothing
// is taken: no name is better than a wrong one.
std::vector<CdiDevice> parse_cdi_json(std::string_view text);
std::vector<CdiDevice> parse_cdi_yaml(std::string_view text);

// Of /etc/cdi and /var/run/cdi below `root`, with nodes below it too; of a name in both the second
// one holds. Files that cannot be read or parsed are left out.
std::vector<CdiDevice> read_cdi(const host::Root& root);

// The name that brings this GPU and no other one; that with its UUID where there are several.
// nullopt: there is none.
std::optional<std::string> cdi_name(const std::vector<CdiDevice>& devices, const gpu::Gpu& gpu);

}  // namespace corral::isolate

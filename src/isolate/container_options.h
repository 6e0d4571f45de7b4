// SPDX-License-Identifier: Apache-2.0
// What the command line of a container engine asks for: docker, podman and nerdctl, which share
// their options.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isolate/command_words.h"

namespace corral::isolate {

// One value of --gpus, as docker's client reads it: a line of comma-separated fields, of which
// those in double quotes may hold commas (docker/cli, opts/gpus.go).
struct GpusOption {
  enum class Kind {
    all,
    count,     // the first N
    devices,   // by number or UUID
    refused,   // docker ends with an error; `why` says which
    not_read,  // a variable of the shell in it, or nothing that docker knows
  };

  Kind kind = Kind::not_read;
  unsigned count = 0;
  std::vector<std::string> devices;
  std::string text;  // the value as it was given
  std::string why;   // it is refused

  bool operator==(const GpusOption&) const = default;
};

GpusOption parse_gpus_option(std::string_view value);

struct ContainerCommand {
  std::string verb;     // "run", "exec", "compose": without "container" before it; empty: none
  bool remote = false;  // names an engine on another host: -H ssh://…, --context, podman --remote
  // false: an option that is not known, behind which options and image cannot be told apart.
  bool complete = true;

  std::vector<GpusOption> gpus;
  std::vector<std::string> cdi;    // "nvidia.com/gpu=0" of --device
  std::vector<std::string> nodes;  // "/dev/nvidia0" of --device
  // NVIDIA_VISIBLE_DEVICES of -e. Without a value (`-e NAME`) the client passes its own on, which
  // in a confined job is the selection.
  std::optional<std::string> visible_devices;
  bool passes_visible_devices = false;
  std::string opens_everything;  // the option that does: "--privileged", "-v /dev:/dev"; or empty
};

// Reads the words behind "docker". Any words are good.
ContainerCommand parse_container_command(const Words& arguments);

}  // namespace corral::isolate

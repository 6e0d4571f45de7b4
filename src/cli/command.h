// SPDX-License-Identifier: Apache-2.0
// A command is one self-registering file in commands/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/registry.h"

namespace corral::cli {

struct Arguments {
  std::vector<std::string> options;  // after the command's name, up to "--"
  std::vector<std::string> job;      // after "--"
  bool has_job = false;              // "--" was there
};

struct Command {
  std::string_view name;
  std::string_view summary;  // one line for `corral --help`
  int (*run)(const Arguments& arguments) = nullptr;
  std::string (*help)() = nullptr;  // the whole of `corral help NAME`, with examples
};

// Every command, by name.
std::vector<const Command*> all_commands();

// nullptr when there is none of that name.
const Command* find_command(std::string_view name);

}  // namespace corral::cli

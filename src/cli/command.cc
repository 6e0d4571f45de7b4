// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

#include <algorithm>

namespace corral::cli {

std::vector<const Command*> all_commands() {
  std::vector<const Command*> commands;
  for (auto* entry = Registered<Command>::first(); entry; entry = entry->next())
    commands.push_back(&entry->value());
  std::ranges::sort(commands, {}, [](const Command* command) { return command->name; });
  return commands;
}

const Command* find_command(std::string_view name) {
  for (const Command* command : all_commands())
    if (command->name == name) return command;
  return nullptr;
}

}  // namespace corral::cli

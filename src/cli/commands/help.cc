// SPDX-License-Identifier: Apache-2.0
// corral help COMMAND.
#include <fmt/format.h>

#include "base/text.h"
#include "cli/command.h"
#include "cli/print.h"
#include "launch/exit_codes.h"

namespace corral::cli {
namespace {

std::string help() {
  return "usage: corral help COMMAND\n\nPrints a command's options and examples.\n";
}

int run(const Arguments& arguments) {
  // What stands behind a command's name is one of its verbs: they share a page.
  if (arguments.options.empty()) {
    print_error("{}", help());
    return launch::kUsage;
  }
  const Command* command = find_command(arguments.options.front());
  if (command == nullptr) {
    print_error("corral: no command '{}'; corral --help shows them\n",
                printable(arguments.options.front()));
    return launch::kUsage;
  }
  print_out("{}", command->help());
  return 0;
}

const Registered<Command> command{Command{
    .name = "help", .summary = "print a command's options and examples", .run = run, .help = help}};

}  // namespace
}  // namespace corral::cli

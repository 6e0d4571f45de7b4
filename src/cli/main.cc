// SPDX-License-Identifier: Apache-2.0
// corral: finds the command and runs it. The list of commands is the registry's, not this file's.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>

#include "base/text.h"
#include "cli/command.h"
#include "cli/print.h"
#include "cli/version.h"
#include "launch/exit_codes.h"

namespace corral::cli {
namespace {

std::string overview() {
  std::string text =
      "Corral keeps a GPU job on the GPUs it was given, and says who strayed.\n\n"
      "usage: corral COMMAND [options] [-- CMD…]\n\n";
  for (const Command* command : all_commands())
    text += fmt::format("  {:<10} {}\n", command->name, command->summary);
  return text +
         "\nexamples:\n"
         "  corral run --gpus 1 -- python3 train.py    only GPU 1, enforced by the kernel\n"
         "  corral run --gpus none -- pytest           no GPU at all\n"
         "  corral trace -- python3 train.py           who is on which GPU, by line\n"
         "  corral run --gpus 0,2-3 --dry-run -- ./job what would be done, and how\n\n"
         "GPU numbers are nvidia-smi's. The job owns stdin, stdout and the exit code; Corral "
         "writes to stderr.\n"
         "corral help COMMAND tells more. -V prints the version.\n";
}

Arguments arguments_of(int argc, char** argv) {
  Arguments arguments;
  for (int i = 2; i < argc; ++i) {
    if (arguments.has_job)
      arguments.job.emplace_back(argv[i]);
    else if (std::string_view(argv[i]) == "--")
      arguments.has_job = true;
    else
      arguments.options.emplace_back(argv[i]);
  }
  return arguments;
}

int unknown(std::string_view name) {
  std::vector<std::string> names;
  for (const Command* command : all_commands()) names.emplace_back(command->name);
  print_error("corral: no command '{}': there is {}\n  corral --help shows them\n", printable(name),
              join_and(names));
  return launch::kUsage;
}

int main(int argc, char** argv) {
  if (argc < 2) {
    print_error("{}", overview());
    return launch::kUsage;
  }
  const std::string_view first = argv[1];
  if (first == "-V" || first == "--version") {
    print_out("corral {}\n", kVersion);
    return 0;
  }
  if (first == "-h" || first == "--help" || (first == "help" && argc == 2)) {
    print_out("{}", overview());
    return 0;
  }
  if (const Command* command = find_command(first)) return command->run(arguments_of(argc, argv));
  return unknown(first);
}

// Where the caller closed stdin, stdout or stderr, our own files would get that number: what we
// print would go into them. The job gets them closed, as without us.
void occupy_standard_descriptors() {
  int fd = 0;
  do fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) ::close(fd);
}

}  // namespace

}  // namespace corral::cli

int main(int argc, char** argv) {
  try {
    corral::cli::occupy_standard_descriptors();
    const int code = corral::cli::main(argc, argv);
    // A thread may be left in NVML (sample/sampler): exit(3) would wait for its dlopen and take the
    // library down under it. All that ends with the program has ended by now.
    std::fflush(nullptr);
    ::_exit(code);
  } catch (const std::exception& error) {
    // Memory, and bugs: expected failures are values.
    corral::cli::print_error("corral: {}\n", error.what());
    return corral::launch::kCannotSetUp;
  }
}

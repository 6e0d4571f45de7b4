// SPDX-License-Identifier: Apache-2.0
// Which programs a command line will start, as far as it says so itself.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace corral::isolate {

using Words = std::vector<std::string>;

// The command behind env, sudo, timeout, nice and the like, and the commands in the text of
// `sh -c`; the argv itself where it is none of these. Nothing is expanded: a word with a variable
// in it stays as it is written, a script's file is not read. Any argv is good, none is an error.
std::vector<Words> commands_within(const Words& argv);

// The commands of a shell's text, each with its words unquoted; what comes after a here-document is
// not read.
std::vector<Words> shell_commands(std::string_view text);

// "/usr/bin/docker" is "docker".
std::string_view base_name(std::string_view path);

}  // namespace corral::isolate

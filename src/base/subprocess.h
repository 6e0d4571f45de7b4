// SPDX-License-Identifier: Apache-2.0
// Runs another program for its answer, within a time. Not for jobs: those are launch/'s.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/error.h"

namespace corral {

struct Question {
  std::vector<std::string> words;        // the program, by its path or by PATH, and its arguments
  std::vector<std::string> environment;  // all of it, "NAME=value"
  std::string input{};                   // its standard input: a few lines at most
};

struct Answer {
  int exit_code = 0;  // -1: a signal ended it; 0 too where the caller ignores SIGCHLD
  std::string text;   // stdout and stderr
};

// The program is in a session of its own, with no signal blocked. Errors: it cannot be started, did
// not answer and end within `patience`, or answered too much; nothing of its session is left then.
// A program that is not there ends with 127.
Result<Answer> ask_program(const Question& question, std::chrono::milliseconds patience);

// This process's environment, "NAME=value".
std::vector<std::string> own_environment();

}  // namespace corral

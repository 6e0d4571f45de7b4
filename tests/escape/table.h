// SPDX-License-Identifier: Apache-2.0
// The ways out, the methods, and what is expected where they meet. The table in docs/isolation.md
// is printed from here, and a test compares both with what the kernel really does.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "confined_run.h"

namespace corral::escape {

struct Row {
  const char* name;  // in the table
  const char* way;   // of the escape program
  Setup setup;
  // One letter a column, in the order of columns(); a blank between root's and the user's:
  //   o  gets the node      r  refused      x  corral refuses to start and says why
  //   -  does not exist for this person or on this kernel: proves nothing
  const char* expected;
  const char* meaning;  // for the documentation
};

std::span<const Row> rows();
const std::vector<Column>& columns();

// The letter of a row in a column.
char expected(const Row& row, std::size_t column);

// The table for docs/isolation.md.
std::string markdown();

}  // namespace corral::escape

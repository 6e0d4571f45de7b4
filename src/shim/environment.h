// SPDX-License-Identifier: Apache-2.0
// Environment variables of a program that may be changing them in another thread at this moment.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace corral::shim {

struct Variable {
  const char* name;
  char* value;      // out: without a final NUL
  size_t capacity;  // of value
  size_t bytes;     // out: of value
  bool set;         // out
  bool cut;         // out: the value is longer than `capacity`
};

// Looks all of them up in one walk over `environ`. getenv would crash when another thread's setenv
// moves the list meanwhile; this does not, it may at worst miss a variable.
void read_variables(Variable* variables, size_t count);

// A number that changes when a variable is set, changed or removed. Two to three system calls,
// where a look-up needs one for each variable there is.
uint64_t environment_mark();

}  // namespace corral::shim

// SPDX-License-Identifier: Apache-2.0
// The calling thread's native frames, as addresses.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace corral::shim {

// Return addresses moved back into the call, innermost first, without the shim's own frames. How
// many; 0 when there is no unwinder.
size_t capture_native(uintptr_t* addresses, size_t capacity);

struct LoadedModule {
  uint64_t load_base;
  const char* path;  // the loader's own text: valid while the module is loaded
};

// The file that an address lies in; false: in none (code made at run time).
bool module_of(uintptr_t address, LoadedModule& module);

}  // namespace corral::shim

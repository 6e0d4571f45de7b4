// SPDX-License-Identifier: Apache-2.0
// The unwinder is libgcc's, opened when first needed: linking to it would add a dependency that a
// program without C++ may not have. Where a module begins is asked of _dl_find_object (glibc 2.35),
// which takes no lock; older systems get one walk over the list of modules a frame.
#include "shim/stack_native.h"

#include <link.h>
#include <string.h>

#include "shim/symbols.h"

extern "C" {
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));
}

namespace corral::shim {
namespace {

// From the C++ ABI that libgcc implements.
struct UnwindContext;
using UnwindCallback = int (*)(UnwindContext*, void*);
constexpr int kUnwindGoOn = 0;
constexpr int kUnwindStop = 4;

struct Unwinder {
  int (*backtrace)(UnwindCallback, void*);
  uintptr_t (*address)(UnwindContext*, int*);
};

// glibc's struct dl_find_object.
struct FoundObject {
  unsigned long long flags;
  void* map_start;
  void* map_end;
  struct link_map* map;
  void* rest[8];
};
using FindObject = int (*)(void*, FoundObject*);

enum Phase : int { kUntried, kThere, kMissing };

struct Functions {
  int unwinder_phase;
  int find_phase;
  Unwinder unwinder;
  FindObject find_object;
};
// Looked up once; threads that race store the same values.
Functions functions;

bool unwinder_ready() {
  const int phase = __atomic_load_n(&functions.unwinder_phase, __ATOMIC_ACQUIRE);
  if (phase != kUntried) return phase == kThere;
  void* const library = open_library("libgcc_s.so.1", RTLD_LAZY);
  int result = kMissing;
  if (library != nullptr) {
    functions.unwinder.backtrace = reinterpret_cast<decltype(functions.unwinder.backtrace)>(
        find_symbol(library, "_Unwind_Backtrace"));
    functions.unwinder.address = reinterpret_cast<decltype(functions.unwinder.address)>(
        find_symbol(library, "_Unwind_GetIPInfo"));
    if (functions.unwinder.backtrace && functions.unwinder.address) result = kThere;
  }
  __atomic_store_n(&functions.unwinder_phase, result, __ATOMIC_RELEASE);
  return result == kThere;
}

bool find_object_ready() {
  const int phase = __atomic_load_n(&functions.find_phase, __ATOMIC_ACQUIRE);
  if (phase != kUntried) return phase == kThere;
  functions.find_object =
      reinterpret_cast<FindObject>(find_symbol(RTLD_DEFAULT, "_dl_find_object"));
  const int result = functions.find_object ? kThere : kMissing;
  __atomic_store_n(&functions.find_phase, result, __ATOMIC_RELEASE);
  return result == kThere;
}

struct Walk {
  uintptr_t* addresses;
  size_t capacity;
  size_t count;
};

int take_frame(UnwindContext* context, void* argument) {
  Walk& walk = *static_cast<Walk*>(argument);
  int before_instruction = 0;
  uintptr_t address = functions.unwinder.address(context, &before_instruction);
  if (address == 0) return kUnwindStop;
  // A return address may already belong to the next line, or to the next function.
  if (!before_instruction) --address;
  const bool ours = address >= reinterpret_cast<uintptr_t>(__ehdr_start) &&
                    address < reinterpret_cast<uintptr_t>(_end);
  if (ours && walk.count == 0) return kUnwindGoOn;
  walk.addresses[walk.count++] = address;
  return walk.count < walk.capacity ? kUnwindGoOn : kUnwindStop;
}

struct Search {
  uintptr_t address;
  LoadedModule* module;
};

int visit_module(struct dl_phdr_info* info, size_t, void* argument) {
  const Search& search = *static_cast<Search*>(argument);
  for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && search.address >= begin &&
        search.address < begin + segment.p_memsz) {
      search.module->load_base = info->dlpi_addr;
      search.module->path = info->dlpi_name;
      return 1;
    }
  }
  return 0;
}

}  // namespace

size_t capture_native(uintptr_t* addresses, size_t capacity) {
  if (!unwinder_ready()) return 0;
  Walk walk = {.addresses = addresses, .capacity = capacity, .count = 0};
  functions.unwinder.backtrace(take_frame, &walk);
  return walk.count;
}

bool module_of(uintptr_t address, LoadedModule& module) {
  if (find_object_ready()) {
    FoundObject found;
    if (functions.find_object(reinterpret_cast<void*>(address), &found) != 0) return false;
    module.load_base = found.map->l_addr;
    module.path = found.map->l_name;
    return true;
  }
  Search search = {.address = address, .module = &module};
  return dl_iterate_phdr(visit_module, &search) == 1;
}

}  // namespace corral::shim

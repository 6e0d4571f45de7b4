// SPDX-License-Identifier: Apache-2.0
// Stands in for glibc's _dl_find_object, so that the program starts on glibc 2.34.
//
// The unwinder of GCC 12 that we link statically asks for _dl_find_object when it was built where
// glibc has it, and that is glibc 2.35. The reference is strong: without the symbol the loader
// refuses the whole program. Defined here, it is found before libc's. dl_iterate_phdr, which older
// unwinders used, gives the same answer, only slower: exceptions are thrown for a wrong command
// line at most.
#include <dlfcn.h>
#include <link.h>

#include <cstdint>

#ifdef DLFO_EH_SEGMENT_TYPE

namespace {

struct Search {
  std::uintptr_t address;
  dl_find_object* result;
};

int look_in(dl_phdr_info* object, std::size_t /*size*/, void* data) {
  const auto* search = static_cast<const Search*>(data);
  bool inside = false;
  dl_find_object found{};
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    const std::uintptr_t start = object->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == DLFO_EH_SEGMENT_TYPE) {
      found.dlfo_eh_frame = reinterpret_cast<void*>(start);
    } else if (segment.p_type == PT_LOAD && search->address >= start &&
               search->address < start + segment.p_memsz) {
      inside = true;
      found.dlfo_map_start = reinterpret_cast<void*>(start);
      found.dlfo_map_end = reinterpret_cast<void*>(start + segment.p_memsz);
    }
  }
  if (!inside || found.dlfo_eh_frame == nullptr) return 0;
  *search->result = found;
  return 1;
}

}  // namespace

// Hidden: libraries that are loaded later keep libc's.
extern "C" [[gnu::visibility("hidden")]] int _dl_find_object(void* address,
                                                             dl_find_object* result) noexcept {
  Search search{reinterpret_cast<std::uintptr_t>(address), result};
  return ::dl_iterate_phdr(look_in, &search) == 1 ? 0 : -1;
}

#endif

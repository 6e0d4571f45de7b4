// SPDX-License-Identifier: Apache-2.0
// The dynamic loader's functions under their oldest symbol version.
//
// glibc 2.34 moved them from libdl to libc with a new version; linked as they come they would keep
// the shim from loading on anything older. Every driver brings libdl along, so the old version is
// there on every glibc. A failed look-up leaves nothing behind for the job's own dlerror().
#pragma once

#include <dlfcn.h>

#if defined(__x86_64__)
__asm__(".symver dlopen, dlopen@GLIBC_2.2.5");
__asm__(".symver dlclose, dlclose@GLIBC_2.2.5");
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
__asm__(".symver dlerror, dlerror@GLIBC_2.2.5");
#elif defined(__aarch64__)
__asm__(".symver dlopen, dlopen@GLIBC_2.17");
__asm__(".symver dlclose, dlclose@GLIBC_2.17");
__asm__(".symver dlsym, dlsym@GLIBC_2.17");
__asm__(".symver dlerror, dlerror@GLIBC_2.17");
#endif

namespace corral::shim {

inline void* find_symbol(void* handle, const char* name) {
  void* const address = dlsym(handle, name);
  if (address == nullptr) dlerror();
  return address;
}

inline void* open_library(const char* name, int flags) {
  void* const handle = dlopen(name, flags);
  if (handle == nullptr) dlerror();
  return handle;
}

}  // namespace corral::shim

// SPDX-License-Identifier: Apache-2.0
// CORRAL_HOOK(f, base, since) makes f, declared in driver_api.h, a wrapped function: one line
// beside its definition, and no other list to keep in step.
//
// The line puts a pointer to the hook's description into the ELF section corral_hooks, which the
// linker delimits. Pointers and not structs: compilers pad structs in such a section. There is no
// constructor, so the table works before any initialiser has run.
#pragma once

#include "shim/driver_api.h"

namespace corral::shim {

struct Hook {
  const char* name;  // exported symbol: "cuMemAlloc_v2"
  const char* base;  // name without version, as cuGetProcAddress is asked: "cuMemAlloc"
  int since;         // CUDA version in which this form appeared, as cuGetProcAddress is asked: 3020
  uint64_t stream;   // kLegacyStream or kPerThreadStream: the flags that bring this form
  void* wrapper;     // ours
  void* original;    // the driver's: null: not looked up yet, kAbsent: the driver has none
  void* answer;      // what cuGetProcAddress answers for base and since; likewise
};

constexpr uintptr_t kAbsent = 1;

// Looks the driver's function up, once; null when this driver has none.
void* find_original(Hook& hook);

// The driver's own function, never ours; null when this driver has none.
inline void* original_of(Hook& hook) {
  void* const original = __atomic_load_n(&hook.original, __ATOMIC_ACQUIRE);
  if (__builtin_expect(reinterpret_cast<uintptr_t>(original) > kAbsent, 1)) return original;
  return find_original(hook);
}

// The hook's wrapper when `function`, the driver's answer for `symbol`, is the function that the
// wrapper stands for; else `function`.
void* replacement_of(const char* symbol, void* function);

// The driver's function of that name; null when it has none. Not for names that are hooked.
void* driver_function(const char* name);

}  // namespace corral::shim

#define CORRAL_HOOK_OF_STREAM(function, base, since, stream)                                  \
  static ::corral::shim::Hook hook_of_##function = {                                          \
      #function, base,   since, ::corral::shim::stream, reinterpret_cast<void*>(&::function), \
      nullptr,   nullptr};                                                                    \
  __attribute__((section("corral_hooks"), used,                                               \
                 retain)) static ::corral::shim::Hook* const entry_of_##function =            \
      &hook_of_##function

#define CORRAL_HOOK(function, base, since) \
  CORRAL_HOOK_OF_STREAM(function, base, since, kLegacyStream)

// The form that works on the calling thread's own default stream: f_ptsz.
#define CORRAL_HOOK_PER_THREAD(function, base, since) \
  CORRAL_HOOK_OF_STREAM(function, base, since, kPerThreadStream)

// The driver's function behind the hook, of the same type; null when this driver has none.
#define CORRAL_ORIGINAL(function) \
  reinterpret_cast<decltype(&::function)>(::corral::shim::original_of(hook_of_##function))

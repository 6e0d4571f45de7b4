// SPDX-License-Identifier: Apache-2.0
// Finds the driver's own functions, and tells which answers of cuGetProcAddress our wrappers stand
// for.
//
// The originals are looked up in the library that the shim depends on, by handle: RTLD_NEXT depends
// on the caller's place in the loader's lists, and a tail call changes who the caller is.
//
// cuGetProcAddress is asked for a base name and a CUDA version and answers with one of several
// forms that differ in their arguments (cuCtxCreate has four so far). A table of versions would be
// wrong for the form that comes next year. So the driver itself is asked which function it gives
// for the version that our wrapper was written for, and only that very function is replaced.
// Per-thread-default-stream forms are other functions, with wrappers of their own.
#include <string.h>

#include "shim/hook.h"
#include "shim/symbols.h"

extern "C" {
extern corral::shim::Hook* const __start_corral_hooks[] __attribute__((visibility("hidden")));
extern corral::shim::Hook* const __stop_corral_hooks[] __attribute__((visibility("hidden")));
}

namespace corral::shim {
namespace {

void* load(void*& place) { return __atomic_load_n(&place, __ATOMIC_ACQUIRE); }
void store(void*& place, void* value) { __atomic_store_n(&place, value, __ATOMIC_RELEASE); }

void* exported_by_driver(const char* name) {
  // The name is that of our own DT_NEEDED entry, so the library is loaded whenever we are.
  void* const driver = open_library("libcorral-driver.so", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return find_symbol(RTLD_NEXT, name);
  void* const function = find_symbol(driver, name);
  dlclose(driver);
  return function;
}

// A driver that is older than the form answers with the newest form that it has: with arguments
// that are not the wrapper's.
bool driver_has(int cuda_version) {
  auto* const get_version =
      reinterpret_cast<CUresult (*)(int*)>(exported_by_driver("cuDriverGetVersion"));
  int version = 0;
  return get_version != nullptr && get_version(&version) == kSuccess && version >= cuda_version;
}

void* ask_driver(const Hook& hook) {
  if (!driver_has(hook.since)) return nullptr;
  void* function = nullptr;
  if (void* const newer = exported_by_driver("cuGetProcAddress_v2")) {
    int status = 0;
    if (reinterpret_cast<decltype(&cuGetProcAddress_v2)>(newer)(hook.base, &function, hook.since,
                                                                hook.stream, &status) == kSuccess) {
      return function;
    }
  } else if (void* const older = exported_by_driver("cuGetProcAddress")) {
    if (reinterpret_cast<decltype(&cuGetProcAddress)>(older)(hook.base, &function, hook.since,
                                                             hook.stream) == kSuccess) {
      return function;
    }
  }
  return nullptr;
}

void* const absent = reinterpret_cast<void*>(kAbsent);

void* answer_for(Hook& hook) {
  void* answer = load(hook.answer);
  if (answer == nullptr) {
    answer = ask_driver(hook);
    if (answer == nullptr || answer == hook.wrapper) answer = absent;
    store(hook.answer, answer);
  }
  return answer == absent ? nullptr : answer;
}

}  // namespace

void* find_original(Hook& hook) {
  void* original = load(hook.original);
  if (original == nullptr) {
    original = exported_by_driver(hook.name);
    if (original == nullptr || original == hook.wrapper) original = answer_for(hook);
    if (original == nullptr) original = absent;
    store(hook.original, original);
  }
  return original == absent ? nullptr : original;
}

void* replacement_of(const char* symbol, void* function) {
  if (symbol == nullptr || function == nullptr) return function;
  for (Hook* const* entry = __start_corral_hooks; entry != __stop_corral_hooks; ++entry) {
    Hook& hook = **entry;
    if (strcmp(hook.base, symbol) != 0 && strcmp(hook.name, symbol) != 0) continue;
    if (function == original_of(hook) || function == answer_for(hook)) return hook.wrapper;
  }
  return function;
}

void* driver_function(const char* name) { return exported_by_driver(name); }

}  // namespace corral::shim

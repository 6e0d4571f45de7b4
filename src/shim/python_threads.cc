// SPDX-License-Identifier: Apache-2.0
#include "shim/python_threads.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/python_memory.h"

namespace corral::shim {
namespace {

constexpr size_t kMaxThreads = 8192;

// A thread state names its thread by pthread_t, from 3.11 on also by the kernel's number. Where the
// C library keeps that number is seen on the calling thread, whose number is known. 0: not found.
size_t place_of_number() {
  constexpr size_t kBytes = 1024;  // glibc's struct is more than twice as long
  int32_t words[kBytes / sizeof(int32_t)];
  const auto own = static_cast<int32_t>(syscall(SYS_gettid));
  if (!safe_read_all(words, reinterpret_cast<const void*>(pthread_self()), sizeof words)) return 0;
  for (size_t i = 0; i < sizeof words / sizeof *words; ++i) {
    if (words[i] == own) return i * sizeof *words;
  }
  return 0;
}

}  // namespace

const char* main_thread_state(const Interpreter& python, Reason& reason) {
  const PythonLayout& layout = python.layout;
  const long main = syscall(SYS_getpid);
  const ThroughKernel memory(main);
  const void* const interpreter = python.main_interpreter ? python.main_interpreter() : nullptr;
  const size_t place = place_of_number();
  const char* at = nullptr;
  const char* found = nullptr;
  if (interpreter == nullptr || place == 0 ||
      !memory.read(&at, static_cast<const char*>(interpreter) + layout.interpreter_threads,
                   sizeof at)) {
    reason = "the interpreter tells no threads";
    return nullptr;
  }
  for (size_t i = 0; at != nullptr; ++i) {
    const ThroughKernel::Object state(memory, at);
    const void* owner = nullptr;
    const char* thread = nullptr;
    const char* next = nullptr;
    int32_t number = 0;
    if (i == kMaxThreads || !get(owner, state, layout.thread_interpreter) || owner != interpreter ||
        !get(thread, state, layout.thread_id) || !get(next, state, layout.thread_next)) {
      reason = "the list of threads is unreadable";
      return nullptr;
    }
    // Up to 3.11 a new state has the number of the thread that makes it until its own thread runs;
    // new ones come first, so the last that matches is the thread's own.
    if (memory.read(&number, thread + place, sizeof number) && number == main) found = at;
    at = next;
  }
  if (found == nullptr) reason = "it has none";
  return found;
}

}  // namespace corral::shim

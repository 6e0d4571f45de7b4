// SPDX-License-Identifier: Apache-2.0
// Walks the calling thread's own frames. The thread stands still inside a call, so nothing of what
// is read changes, whether it holds the GIL or not; the GIL is never taken, and of the interpreter
// nothing is called but functions that read one value (python_interpreter.h).
//
// What can be wrong is the layout: another build of the same version, a patched interpreter. So the
// first stack of a process is read through the kernel, which answers wrong addresses with an error,
// and every object on it must be of the type it is taken for. Only a layout that has passed is read
// directly from then on, at tens of nanoseconds a frame, and the types go on being checked.
//
// What can go away is the memory. An interpreter that ends frees the states of threads that are
// inside a call without the GIL and never came back. It waits for threads that have the GIL, and is
// itself run by the main thread: only those two are read directly, all others through the kernel,
// and a stack counts only when it was the same before and after. So is the main thread's stack when
// a thread has none of its own.
#include "shim/stack_python.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/python_dump.h"
#include "shim/python_frames.h"
#include "shim/python_threads.h"

namespace corral::shim {
namespace {

constexpr size_t kMaxDepth = 1U << 20;      // a longer chain is taken for a broken one
constexpr size_t kMaxDepthByKernel = 8192;  // about a millisecond each thousand
constexpr int kTries = 4;

enum Phase : int { kUntried, kUntested, kTested, kRefused };

// Filled once; threads that race store the same values. Nothing of it depends on the process, so a
// child of fork may keep it.
struct Walker {
  int phase;
  Interpreter interpreter;
  char source[96];  // "walker 3.12", or why it was refused
};
constinit Walker walker{};

void name_walker(Walker& result) {
  Text text{result.source, sizeof result.source - 1};
  text.add("walker 3.");
  text.add(result.interpreter.minor);
  if (result.interpreter.layout.free_threaded) text.add("t");
  result.source[text.used] = '\0';
}

int refuse(Walker& result, Reason prefix, Reason reason) {
  Text text{result.source, sizeof result.source - 1};
  text.add("Python ");
  text.add(result.interpreter.major);
  text.add(".");
  text.add(result.interpreter.minor);
  text.add(": ");
  text.add(prefix);
  text.add(reason);
  result.source[text.used] = '\0';
  return kRefused;
}

void add_source(trace::RecordBuilder& record, const char* first, const char* second = "",
                const char* third = "") {
  char buffer[256];
  Text text{buffer, sizeof buffer};
  text.add(first);
  text.add(second);
  text.add(third);
  record.text(wire::kPythonSource, buffer, text.used);
}

// Publishes a walker of this thread; the first one wins, and later ones are the same.
void publish(const Walker& found, int phase) {
  static int writing;
  if (__atomic_exchange_n(&writing, 1, __ATOMIC_ACQUIRE) != 0) return;
  if (__atomic_load_n(&walker.phase, __ATOMIC_ACQUIRE) == kUntried) {
    walker.interpreter = found.interpreter;
    memcpy(walker.source, found.source, sizeof walker.source);
    __atomic_store_n(&walker.phase, phase, __ATOMIC_RELEASE);
  }
  __atomic_store_n(&writing, 0, __ATOMIC_RELEASE);
}

ThroughKernel through_kernel() { return ThroughKernel(syscall(SYS_getpid)); }

// Reads the frames through the kernel; null: the layout is right.
Reason self_test(const Interpreter& python, const char* thread_state, size_t& count) {
  const ThroughKernel memory = through_kernel();
  Chain chain;
  Reason wrong = walk(memory, python, thread_state, kMaxDepthByKernel, chain);
  count = chain.frames();
  return wrong != nullptr ? wrong : take_frames(memory, python, chain, kNoSink);
}

// The frames of a stack that may change meanwhile. Null: they were the same before and after, and
// there were some; else nothing was added, and this is why.
Reason add_changing_frames(const Interpreter& python, const char* thread_state,
                           const FrameSink& sink) {
  const ThroughKernel memory = through_kernel();
  trace::RecordBuilder& record = *sink.record;
  const uint32_t size = record.size();
  for (int i = 0; i < kTries; ++i) {
    Chain before;
    Chain after;
    if (walk(memory, python, thread_state, kMaxDepthByKernel, before) == nullptr &&
        take_frames(memory, python, before, sink) == nullptr &&
        walk(memory, python, thread_state, kMaxDepthByKernel, after) == nullptr &&
        before.same_as(after)) {
      if (before.frames() > 0 && before.frames() < kMaxDepthByKernel) return nullptr;
      record.rewind(size);
      return before.frames() == 0 ? "it runs no Python code" : "its stack is too deep";
    }
    record.rewind(size);
  }
  return "its frames changed while they were read";
}

void add_own_frames(const Walker& mine, const char* thread_state, bool stays,
                    trace::RecordBuilder& record) {
  const uint32_t size = record.size();
  add_source(record, mine.source);
  if (stays) {
    const Directly memory;
    Chain chain;
    walk(memory, mine.interpreter, thread_state, kMaxDepth, chain);
    take_frames(memory, mine.interpreter, chain, own_frames(record));
    return;
  }
  if (Reason wrong = add_changing_frames(mine.interpreter, thread_state, own_frames(record))) {
    record.rewind(size);
    add_source(record, mine.source, ": this thread's state: ", wrong);
  }
}

void add_refused(const Walker& mine, void* thread_state, bool stays, trace::RecordBuilder& record) {
  if (thread_state == nullptr || !stays) return add_source(record, mine.source);
  const uint32_t size = record.size();
  add_source(record, "_Py_DumpTraceback, ", mine.source);
  if (add_dumped_frames(mine.interpreter, thread_state, record)) return;
  record.rewind(size);
  add_source(record, mine.source);
}

bool on_main_thread() { return syscall(SYS_gettid) == syscall(SYS_getpid); }

// The walker as far as it is known; false: there is no interpreter.
bool current_walker(Walker& mine) {
  if (__atomic_load_n(&walker.phase, __ATOMIC_ACQUIRE) != kUntried) {
    mine = walker;
    return true;
  }
  if (!find_interpreter(mine.interpreter)) return false;
  if (Reason reason = choose_layout(mine.interpreter)) {
    mine.phase = refuse(mine, "", reason);
    publish(mine, kRefused);
  } else {
    mine.phase = kUntested;
    name_walker(mine);
  }
  return true;
}

}  // namespace

void add_python_stack(trace::RecordBuilder& record) {
  Walker mine{};
  if (!current_walker(mine)) return add_source(record, "no interpreter");
  const Interpreter& python = mine.interpreter;
  void* thread_state = python.this_thread_state();
  void* const attached = python.attached_thread_state ? python.attached_thread_state() : nullptr;
  // From 3.12 on the attached state is a value of this thread, also in a subinterpreter, of which
  // the first function knows nothing.
  if (attached != nullptr && python.minor >= 12) thread_state = attached;
  const bool stays = on_main_thread() || (attached != nullptr && attached == thread_state);
  if (mine.phase == kRefused) return add_refused(mine, thread_state, stays, record);
  if (thread_state == nullptr) return add_source(record, "no Python state on this thread");
  const auto* const state = static_cast<const char*>(thread_state);
  if (mine.phase == kUntested) {
    size_t count = 0;
    if (Reason wrong = self_test(python, state, count)) {
      refuse(mine, "self-test failed: ", wrong);
      // A state that goes away meanwhile says nothing about the layout.
      if (stays) publish(mine, kRefused);
      return add_refused(mine, thread_state, stays, record);
    }
    // Without a frame nothing was tested: the next event tries again.
    if (count == 0) return add_source(record, "no Python frame on this thread");
    publish(mine, kTested);
  }
  add_own_frames(mine, state, stays, record);
}

void add_main_thread_stack(trace::RecordBuilder& record) {
  Walker mine{};
  if (on_main_thread() || !current_walker(mine)) return;
  Reason reason = mine.source;
  if (mine.phase != kRefused) {
    const uint32_t size = record.size();
    if (const char* const state = main_thread_state(mine.interpreter, reason)) {
      record.text(wire::kMainThreadSource, mine.source, strlen(mine.source));
      reason = add_changing_frames(mine.interpreter, state, main_thread_frames(record));
      if (reason == nullptr) return;
      record.rewind(size);
    }
  }
  record.text(wire::kMainThreadSource, reason, strlen(reason));
}

}  // namespace corral::shim

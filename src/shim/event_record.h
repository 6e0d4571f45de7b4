// SPDX-License-Identifier: Apache-2.0
// One event on its way into the trace: function, thread, variables and stack.
#pragma once

#include <string.h>

#include "shim/environment.h"
#include "shim/stack_python.h"
#include "shim/state.h"

namespace corral::shim {

// A record in a buffer of the state. Without a buffer every call does nothing.
class EventRecord {
 public:
  EventRecord(State& state, wire::Kind kind);
  ~EventRecord() {
    if (buffer_) release_scratch(state_, buffer_);
  }
  EventRecord(const EventRecord&) = delete;
  EventRecord& operator=(const EventRecord&) = delete;

  explicit operator bool() const { return buffer_ != nullptr; }
  trace::RecordBuilder& builder() { return record_; }
  void text(wire::Tag tag, const char* value) { record_.text(tag, value, strlen(value)); }
  void variable(const Variable& variable);
  void thread_name();
  void stack();
  void main_thread_stack() { add_main_thread_stack(record_); }
  void write() {
    record_.finish();
    write_record(state_, record_);
  }

 private:
  State& state_;
  char* buffer_;
  alignas(8) char empty_[64];
  trace::RecordBuilder record_;
};

}  // namespace corral::shim

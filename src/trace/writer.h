// SPDX-License-Identifier: Apache-2.0
// Builds records in a buffer and appends them to the trace file of this process.
//
// This code runs inside other people's programs: it needs nothing but libc and system calls, never
// allocates, never blocks on a lock, is not a cancellation point, and leaves errno to its caller to
// save. There is no state but what the caller owns.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "trace/wire.h"

namespace corral::trace {

int64_t clock_ns(int clock_id);

// One record under construction in a buffer of the caller. A field that does not fit is left out or
// cut and marked; the record stays well-formed.
class RecordBuilder {
 public:
  // `capacity` bytes at `buffer`, aligned to wire::kAlignment, at least 512 bytes.
  RecordBuilder(char* buffer, uint32_t capacity, wire::Kind kind, uint32_t tid,
                int64_t monotonic_ns);

  // The kind's struct; exactly once, before any field.
  template <class Payload>
  void payload(const Payload& value) {
    static_assert(sizeof(Payload) % wire::kAlignment == 0);
    put_payload(&value, sizeof value);
  }

  void text(wire::Tag tag, const char* data, size_t bytes, bool cut = false);
  // `tag` is kPythonFrame or kMainThreadFrame, kPythonOmitted or kMainThreadOmitted.
  void python_frame(wire::Tag tag, uint32_t line, const char* file, size_t file_bytes,
                    const char* function, size_t function_bytes);
  void python_omitted(wire::Tag tag, uint64_t frames);
  void native_frames(const wire::NativeFrameData* frames, size_t count);

  uint32_t room() const { return capacity_ - used_; }
  // Drops all fields that were added since size() was `size`.
  void rewind(uint32_t size) { used_ = size; }
  // Completes the header; the record is then `size()` bytes at the buffer.
  void finish();
  const char* data() const { return buffer_; }
  uint32_t size() const { return used_; }

 private:
  void put_payload(const void* data, uint32_t bytes);
  // The data of a new field of `bytes`, zero-padded; null when there is no room.
  char* field(wire::Tag tag, uint32_t bytes, bool cut);

  char* buffer_;
  uint32_t capacity_;
  uint32_t used_;
};

// The trace and counters file of one process. All zero: not opened.
struct Writer {
  int fd;      // -1: none
  int broken;  // a record was written in part: whatever followed it could not be read
  // The file behind fd, so that a descriptor that the job closed and that the kernel then gave to
  // another file is noticed before anything is written to it.
  uint64_t device;
  uint64_t inode;
  char path[4096];
  uint64_t start_time_ticks;     // of this process; 0: unknown
  wire::CountersFile* counters;  // null: there is no counters file
};

// Creates both files in `folder`, an absolute path, and writes the header. `scratch` has room for
// wire::kMaxHeaderBytes. False: there is no trace, and the writer is as it was.
bool open_writer(Writer& writer, const char* folder, char* scratch);

// Appends a finished record with one write(2). False: it is lost.
bool append(Writer& writer, const RecordBuilder& record);

// Gives the descriptor back; a later append opens the file again.
void close_descriptor(Writer& writer);

}  // namespace corral::trace

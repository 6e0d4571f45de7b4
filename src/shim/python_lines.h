// SPDX-License-Identifier: Apache-2.0
// The line of an instruction, from a code object's line table. The formats are CPython's own:
// Objects/lnotab_notes.txt (3.8 to 3.10) and Objects/locations.md (from 3.11 on).
#pragma once

#include "shim/python_layout.h"
#include "shim/python_memory.h"

namespace corral::shim {

// Bytes of a line table, read one after the other.
template <class Object>
class TableReader {
 public:
  // `bytes` bytes that begin at `offset` in the object.
  TableReader(const Object& object, size_t offset, size_t bytes)
      : object_(object), at_(offset), left_(bytes) {}
  bool done() const { return (left_ == 0 && next_ == held_) || failed_; }
  bool failed() const { return failed_; }
  uint8_t next() {
    if (next_ == held_ && !fill()) return 0;
    return piece_[next_++];
  }
  void skip(unsigned bytes) {
    while (bytes-- > 0 && !done()) next();
  }
  // Six bits a byte, lowest first; bit 6: more follow.
  uint32_t varint() {
    uint32_t value = 0;
    for (unsigned shift = 0; shift < 32; shift += 6) {
      const uint8_t byte = next();
      value |= static_cast<uint32_t>(byte & 63) << shift;
      if (!(byte & 64)) break;
    }
    return value;
  }
  int32_t signed_varint() {
    const uint32_t value = varint();
    const auto magnitude = static_cast<int32_t>(value >> 1);
    return value & 1 ? -magnitude : magnitude;
  }

 private:
  bool fill() {
    const size_t bytes = left_ < sizeof piece_ ? left_ : sizeof piece_;
    if (bytes == 0 || failed_ || !object_.read(piece_, at_, bytes)) {
      failed_ = true;
      return false;
    }
    at_ += bytes;
    left_ -= bytes;
    next_ = 0;
    held_ = bytes;
    return true;
  }

  const Object& object_;
  size_t at_;
  size_t left_;
  uint8_t piece_[64];
  size_t next_ = 0;
  size_t held_ = 0;
  bool failed_ = false;
};

// Sums of table entries: whatever a broken table says, adding is defined.
inline void add_to(int& line, int step) {
  line = static_cast<int>(static_cast<unsigned>(line) + static_cast<unsigned>(step));
}

// The line of the instruction at `index` (in units of two bytes) in a 3.11 location table; 0: none.
template <class Object>
int line_in_locations(TableReader<Object>& table, int line, int64_t index) {
  int64_t end = 0;
  while (!table.done()) {
    const uint8_t first = table.next();
    const unsigned form = (first >> 3) & 15;
    bool has_line = true;
    if (form == 15) {
      has_line = false;
    } else if (form == 14) {  // line step, end line step, column, end column
      add_to(line, table.signed_varint());
      table.varint();
      table.varint();
      table.varint();
    } else if (form == 13) {  // line step
      add_to(line, table.signed_varint());
    } else if (form >= 10) {  // small line step, two columns
      add_to(line, static_cast<int>(form) - 10);
      table.skip(2);
    } else {  // same line, columns in one byte
      table.skip(1);
    }
    end += (first & 7) + 1;
    if (index < end) return has_line ? line : 0;
  }
  return 0;
}

// The same for the pairs of bytes of 3.8 to 3.10; `at` is in bytes.
template <class Object>
int line_in_pairs(TableReader<Object>& table, LineTable kind, int line, int64_t at) {
  int64_t address = 0;
  if (kind == LineTable::lnotab) {
    while (!table.done()) {
      address += table.next();
      if (address > at) break;
      add_to(line, static_cast<int8_t>(table.next()));
    }
    return line;
  }
  while (!table.done()) {
    address += table.next();
    const auto step = static_cast<int8_t>(table.next());
    if (step != -128) add_to(line, step);
    if (at < address) return step == -128 ? 0 : line;
  }
  return 0;
}

}  // namespace corral::shim

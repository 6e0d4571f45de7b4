// SPDX-License-Identifier: Apache-2.0
// Self-registration: a rule or a command is one file that nothing else names.
#pragma once

namespace corral {

// `const Registered<Rule> rule{{…}};` at namespace scope adds it to the list; the order of the list
// is the linker's, so whoever walks it sorts. The head is constinit: static initialisation order
// cannot matter.
template <class T>
class Registered {
 public:
  explicit Registered(T value) : value_(value), next_(head_) { head_ = this; }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

  static const Registered* first() { return head_; }
  const Registered* next() const { return next_; }
  const T& value() const { return value_; }

 private:
  T value_;
  const Registered* next_;
  static inline constinit const Registered* head_ = nullptr;
};

}  // namespace corral

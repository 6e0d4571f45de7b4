// SPDX-License-Identifier: Apache-2.0
// Expected failures are values: an Error names the object, the value found, the value wanted and
// what to do.
#pragma once

#include <cstring>
#include <expected>
#include <string>
#include <utility>

namespace corral {

struct Error {
  std::string what;  // the object and what is wrong with it: "open /dev/nvidia0: Permission denied"
  std::string hint;  // what to do about it; may be empty
  int sys = 0;       // errno where one was the reason, else 0
};

template <class T>
using Result = std::expected<T, Error>;

inline std::unexpected<Error> fail(std::string what, std::string hint = {}, int sys = 0) {
  return std::unexpected(Error{std::move(what), std::move(hint), sys});
}

// A failed system call on `object`: "object: strerror".
inline std::unexpected<Error> fail_sys(std::string object, int sys, std::string hint = {}) {
  return fail(std::move(object) + ": " + std::strerror(sys), std::move(hint), sys);
}

}  // namespace corral

#define CORRAL_CONCAT_INNER(a, b) a##b
#define CORRAL_CONCAT(a, b) CORRAL_CONCAT_INNER(a, b)

// CORRAL_TRY(auto x, f()): x = the value, or return the error to the caller.
#define CORRAL_TRY(decl, expr) CORRAL_TRY_IMPL(CORRAL_CONCAT(corral_try_, __LINE__), decl, expr)
#define CORRAL_TRY_IMPL(tmp, decl, expr)                    \
  auto tmp = (expr);                                        \
  if (!tmp) return std::unexpected(std::move(tmp).error()); \
  decl = *std::move(tmp)

// CORRAL_CHECK(f()): return the error of a Result<void> to the caller.
#define CORRAL_CHECK(expr)                                      \
  do {                                                          \
    if (auto corral_result = (expr); !corral_result)            \
      return std::unexpected(std::move(corral_result).error()); \
  } while (0)

// SPDX-License-Identifier: Apache-2.0
// A short mangled name can stand for gigabytes of text (each part may repeat all before it), and
// the names are the job's. So the demangler hands out its text in pieces, and is left as soon as
// there is enough; abi::__cxa_demangle would first make the whole.
#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <string>

#include "snapshot/symbols.h"

// From libsupc++, the same that abi::__cxa_demangle uses; no header declares it. 0: not a C++ name.
// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming): the library's name
extern "C" int __gcclibcxx_demangle_callback(const char* mangled,
                                             void (*callback)(const char*, std::size_t, void*),
                                             void* opaque);
// NOLINTEND(bugprone-reserved-identifier, readability-identifier-naming)

namespace corral::snapshot {
namespace {

constexpr std::size_t kMostText = 1000;
constexpr std::size_t kMostSymbol = 16384;

// Nothing in it needs a destructor: the demangler is left by longjmp.
struct Piece {
  char text[kMostText];
  std::size_t used;
  std::jmp_buf enough;
};

void take_piece(const char* text, std::size_t bytes, void* opaque) {
  auto* const piece = static_cast<Piece*>(opaque);
  const std::size_t fits = std::min(bytes, kMostText - piece->used);
  std::memcpy(piece->text + piece->used, text, fits);
  piece->used += fits;
  if (piece->used == kMostText) std::longjmp(piece->enough, 1);  // NOLINT(cert-err52-cpp)
}

enum class Outcome { whole, cut, no_cxx_name };

Outcome demangle(const char* symbol, Piece& piece) {
  piece.used = 0;
  if (setjmp(piece.enough) != 0) return Outcome::cut;  // NOLINT(cert-err52-cpp)
  const bool valid = __gcclibcxx_demangle_callback(symbol, take_piece, &piece) == 0;
  return valid && piece.used > 0 ? Outcome::whole : Outcome::no_cxx_name;
}

}  // namespace

std::string demangled(const std::string& symbol) {
  if (symbol.starts_with("_Z") && symbol.size() <= kMostSymbol) {
    Piece piece;
    switch (demangle(symbol.c_str(), piece)) {
      case Outcome::whole:
        return {piece.text, piece.used};
      case Outcome::cut:
        return std::string(piece.text, piece.used) + "…";
      case Outcome::no_cxx_name:
        break;
    }
  }
  return symbol.size() <= kMostText ? symbol : symbol.substr(0, kMostText) + "…";
}

}  // namespace corral::snapshot

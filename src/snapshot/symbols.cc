// SPDX-License-Identifier: Apache-2.0
// The format is that of elf(5). Nothing is mapped: a file that is cut meanwhile would kill us.
#include "snapshot/symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "base/fd.h"
#include "base/file.h"

namespace corral::snapshot {
namespace {

using std::chrono::steady_clock;
using Offsets = std::set<std::uint64_t>;
using Names = std::map<std::uint64_t, std::string>;

constexpr std::size_t kMaxSections = 10000;
constexpr std::size_t kMaxSegments = 1000;
constexpr std::uint64_t kMaxNoteBytes = 65536;
constexpr std::size_t kMaxNameBytes = 16384;
constexpr std::size_t kSymbolsAtOnce = 8192;

// All of `bytes` at `offset`, or nothing.
template <class T>
bool read_at(int fd, std::uint64_t offset, std::vector<T>& to) {
  std::size_t done = 0;
  const std::size_t bytes = to.size() * sizeof(T);
  while (done < bytes) {
    const ssize_t got = pread(fd, reinterpret_cast<char*>(to.data()) + done, bytes - done,
                              static_cast<off_t>(offset + done));
    if (got <= 0) return false;
    done += static_cast<std::size_t>(got);
  }
  return true;
}

// A descriptor of a regular file: nothing else is opened, since opening some devices does things
// and opening a FIFO waits.
Fd open_regular(const std::string& path, std::optional<std::int64_t> not_after_realtime_ns) {
  if (!path.starts_with('/')) return {};
  const auto place = open_file(path, O_PATH);
  struct stat status{};
  if (!place || fstat(place->get(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  const std::int64_t changed_ns =
      std::int64_t{status.st_ctim.tv_sec} * 1'000'000'000 + status.st_ctim.tv_nsec;
  if (not_after_realtime_ns && changed_ns > *not_after_realtime_ns) return {};
  auto file = open_file("/proc/self/fd/" + std::to_string(place->get()), O_RDONLY | O_NONBLOCK);
  return file ? std::move(*file) : Fd();
}

struct Elf {
  Fd file;
  std::vector<Elf64_Shdr> sections;
  std::vector<Elf64_Phdr> segments;
};

std::optional<Elf> read_elf(Fd file) {
  std::vector<Elf64_Ehdr> header(1);
  if (!file || !read_at(file.get(), 0, header)) return std::nullopt;
  const Elf64_Ehdr& h = header.front();
  constexpr unsigned char kOrder =
      std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;
  if (std::memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64 ||
      h.e_ident[EI_DATA] != kOrder || h.e_shentsize != sizeof(Elf64_Shdr) ||
      h.e_phentsize != sizeof(Elf64_Phdr) || h.e_shnum > kMaxSections || h.e_phnum > kMaxSegments) {
    return std::nullopt;
  }
  Elf elf{.file = std::move(file),
          .sections = std::vector<Elf64_Shdr>(h.e_shnum),
          .segments = std::vector<Elf64_Phdr>(h.e_phnum)};
  if (!read_at(elf.file.get(), h.e_shoff, elf.sections) ||
      !read_at(elf.file.get(), h.e_phoff, elf.segments)) {
    return std::nullopt;
  }
  return elf;
}

// Where the name of the best symbol so far for an offset is.
struct Candidate {
  std::uint64_t value = 0;
  std::uint64_t name_at = 0;  // in the file
  std::uint64_t name_bytes = 0;
  int rank = -1;
};

int rank_of(unsigned char info) {
  switch (ELF64_ST_BIND(info)) {
    case STB_GLOBAL:
      return 2;
    case STB_WEAK:
      return 1;
    default:
      return 0;
  }
}

// Of symbols that cover an offset the one that begins last, and of those the global one.
void offer(const Elf64_Sym& symbol, const Elf64_Shdr& strings, const Offsets& offsets,
           std::map<std::uint64_t, Candidate>& best) {
  const unsigned type = ELF64_ST_TYPE(symbol.st_info);
  if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol.st_shndx == SHN_UNDEF) return;
  if (symbol.st_name == 0 || symbol.st_name >= strings.sh_size) return;
  for (auto at = offsets.lower_bound(symbol.st_value);
       at != offsets.end() && *at - symbol.st_value < symbol.st_size; ++at) {
    Candidate& candidate = best[*at];
    const int rank = rank_of(symbol.st_info);
    if (candidate.rank >= 0 && (candidate.value > symbol.st_value ||
                                (candidate.value == symbol.st_value && candidate.rank >= rank))) {
      continue;
    }
    candidate = {.value = symbol.st_value,
                 .name_at = strings.sh_offset + symbol.st_name,
                 .name_bytes = strings.sh_size - symbol.st_name,
                 .rank = rank};
  }
}

std::string name_at(int fd, const Candidate& candidate) {
  std::string name;
  std::vector<char> piece;
  while (name.size() < kMaxNameBytes) {
    const std::uint64_t left = candidate.name_bytes - name.size();
    if (left == 0) return {};  // without its end it is no name
    piece.resize(std::min<std::uint64_t>(left, 256));
    if (!read_at(fd, candidate.name_at + name.size(), piece)) return {};
    const auto end = std::ranges::find(piece, '\0');
    name.append(piece.begin(), end);
    if (end != piece.end()) return name;
  }
  return {};
}

void look_up(const Elf& elf, const Offsets& offsets, steady_clock::time_point deadline,
             Names& names) {
  std::map<std::uint64_t, Candidate> best;
  std::vector<Elf64_Sym> symbols;
  for (const Elf64_Shdr& section : elf.sections) {
    if (section.sh_type != SHT_SYMTAB && section.sh_type != SHT_DYNSYM) continue;
    if (section.sh_entsize != sizeof(Elf64_Sym) || section.sh_link >= elf.sections.size()) continue;
    const Elf64_Shdr& strings = elf.sections[section.sh_link];
    const std::uint64_t count = section.sh_size / sizeof(Elf64_Sym);
    for (std::uint64_t i = 0; i < count; i += symbols.size()) {
      if (steady_clock::now() > deadline) return;
      symbols.resize(std::min<std::uint64_t>(count - i, kSymbolsAtOnce));
      if (!read_at(elf.file.get(), section.sh_offset + i * sizeof(Elf64_Sym), symbols)) break;
      for (const Elf64_Sym& symbol : symbols) offer(symbol, strings, offsets, best);
    }
  }
  for (const auto& [offset, candidate] : best) {
    const std::string name = name_at(elf.file.get(), candidate);
    if (!name.empty()) names.emplace(offset, demangled(name));
  }
}

// The identity that the linker gave the file, in hexadecimal; empty: none.
std::string build_id(const Elf& elf) {
  for (const Elf64_Phdr& segment : elf.segments) {
    if (segment.p_type != PT_NOTE || segment.p_filesz > kMaxNoteBytes) continue;
    std::vector<char> notes(segment.p_filesz);
    if (!read_at(elf.file.get(), segment.p_offset, notes)) continue;
    for (std::size_t at = 0; notes.size() - at >= sizeof(Elf64_Nhdr);) {
      Elf64_Nhdr note;
      std::memcpy(&note, notes.data() + at, sizeof note);
      const auto aligned = [](std::size_t n) { return (n + 3) & ~std::size_t{3}; };
      const std::size_t name = at + sizeof note;
      const std::size_t data = name + aligned(note.n_namesz);
      const std::size_t end = data + aligned(note.n_descsz);
      if (end > notes.size()) break;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && note.n_descsz > 1 &&
          std::memcmp(notes.data() + name, "GNU", 4) == 0) {
        std::string text;
        for (std::size_t i = 0; i < note.n_descsz; ++i) {
          const auto byte = static_cast<unsigned char>(notes[data + i]);
          text += "0123456789abcdef"[byte >> 4];
          text += "0123456789abcdef"[byte & 15];
        }
        return text;
      }
      at = end;
    }
  }
  return {};
}

}  // namespace

Names function_names(const std::string& path, const Offsets& offsets,
                     std::optional<std::int64_t> not_after_realtime_ns,
                     steady_clock::time_point deadline, const std::string& debug_root) {
  Names names;
  const auto elf = read_elf(open_regular(path, not_after_realtime_ns));
  if (!elf) return names;
  Offsets code;  // anything else is no address of this file: another file was mapped
  for (const std::uint64_t offset : offsets)
    for (const Elf64_Phdr& segment : elf->segments)
      if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0 && offset >= segment.p_vaddr &&
          offset - segment.p_vaddr < segment.p_memsz)
        code.insert(offset);
  look_up(*elf, code, deadline, names);
  for (const auto& [offset, name] : names) code.erase(offset);
  if (const std::string id = build_id(*elf); !code.empty() && !id.empty()) {
    const std::string debug =
        debug_root + "/.build-id/" + id.substr(0, 2) + "/" + id.substr(2) + ".debug";
    if (const auto separate = read_elf(open_regular(debug, std::nullopt));
        separate && build_id(*separate) == id) {
      look_up(*separate, code, deadline, names);
    }
  }
  return names;
}

namespace {

struct Module {
  Offsets offsets;
  double first_s = 0;  // when the earliest of the stacks was taken
};

template <class Visit>
void for_each_stack(Run& run, Visit visit) {
  for (Context& context : run.contexts) visit(context.stack, context.time_s);
  for (Init& init : run.inits) visit(init.stack, init.time_s);
}

}  // namespace

void name_functions(Run& run, std::chrono::milliseconds most) {
  std::map<std::string, Module> modules;
  for_each_stack(run, [&](const Stack& stack, double time_s) {
    for (const NativeFrame& frame : stack.native) {
      const auto [at, fresh] = modules.try_emplace(frame.module);
      at->second.first_s = fresh ? time_s : std::min(at->second.first_s, time_s);
      at->second.offsets.insert(frame.offset);
    }
  });
  const auto deadline = steady_clock::now() + most;
  std::map<std::string, Names> names;
  for (const auto& [path, module] : modules) {
    std::optional<std::int64_t> not_after;
    if (run.started_realtime_ns != 0) {
      not_after = run.started_realtime_ns + static_cast<std::int64_t>(module.first_s * 1e9);
    }
    names[path] = function_names(path, module.offsets, not_after, deadline);
  }
  if (steady_clock::now() > deadline) {
    run.remarks.emplace_back(
        "not every function of the native stacks is named: reading took too long");
  }
  for_each_stack(run, [&](Stack& stack, double) {
    for (NativeFrame& frame : stack.native) {
      const Names& known = names[frame.module];
      if (const auto at = known.find(frame.offset); at != known.end()) frame.function = at->second;
    }
  });
}

}  // namespace corral::snapshot

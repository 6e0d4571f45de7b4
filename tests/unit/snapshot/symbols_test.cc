// SPDX-License-Identifier: Apache-2.0
#include "snapshot/symbols.h"

#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/file.h"

namespace corral_test {
// Not static, not inlined: it has a symbol of its own. Larger than a byte.
__attribute__((noinline)) int function_with_a_name(int a, const char* b) {
  static volatile int sink;
  sink = sink + a + (b != nullptr);
  return sink;
}
}  // namespace corral_test

namespace corral::snapshot {
namespace {

using Names = std::map<std::uint64_t, std::string>;

std::chrono::steady_clock::time_point soon() {
  return std::chrono::steady_clock::now() + std::chrono::minutes(1);
}

class Folder {
 public:
  Folder() {
    std::string path = (std::filesystem::temp_directory_path() / "symbols.XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) std::abort();
    path_ = path;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

struct Symbol {
  std::string name;
  std::uint64_t value;
  std::uint64_t size;
  int bind = STB_GLOBAL;
};

template <class T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// The smallest file with a segment of code at 0x1000-0x2000, a build-id and a symbol table.
std::string elf_file(const std::vector<Symbol>& symbols, bool end_of_strings = true) {
  std::string strings(1, '\0');
  std::string table = bytes_of(Elf64_Sym{});
  for (const Symbol& symbol : symbols) {
    Elf64_Sym entry{};
    entry.st_name = static_cast<Elf64_Word>(strings.size());
    entry.st_info = static_cast<unsigned char>(ELF64_ST_INFO(symbol.bind, STT_FUNC));
    entry.st_shndx = 1;
    entry.st_value = symbol.value;
    entry.st_size = symbol.size;
    table += bytes_of(entry);
    strings += symbol.name + '\0';
  }
  if (!end_of_strings) strings.pop_back();
  const std::string note =
      bytes_of(Elf64_Nhdr{.n_namesz = 4, .n_descsz = 4, .n_type = NT_GNU_BUILD_ID}) +
      std::string("GNU\0\xAB\x01\x02\xEF", 8);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 2;
  header.e_shoff = sizeof header + 2 * sizeof(Elf64_Phdr);
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 3;
  Elf64_Phdr code{};
  code.p_type = PT_LOAD;
  code.p_flags = PF_R | PF_X;
  code.p_vaddr = 0x1000;
  code.p_memsz = 0x1000;
  Elf64_Phdr notes{};
  Elf64_Shdr symtab{};
  Elf64_Shdr strtab{};
  std::uint64_t at = header.e_shoff + 3 * sizeof(Elf64_Shdr);
  notes.p_type = PT_NOTE;
  notes.p_offset = at;
  notes.p_filesz = note.size();
  at += note.size();
  symtab.sh_type = SHT_SYMTAB;
  symtab.sh_offset = at;
  symtab.sh_size = table.size();
  symtab.sh_entsize = sizeof(Elf64_Sym);
  symtab.sh_link = 2;
  at += table.size();
  strtab.sh_type = SHT_STRTAB;
  strtab.sh_offset = at;
  strtab.sh_size = strings.size();
  return bytes_of(header) + bytes_of(code) + bytes_of(notes) + bytes_of(Elf64_Shdr{}) +
         bytes_of(symtab) + bytes_of(strtab) + note + table + strings;
}

Names names_in(const std::string& content, const std::set<std::uint64_t>& offsets) {
  const Folder folder;
  EXPECT_TRUE(write_file(folder / "module.so", content));
  return function_names(folder / "module.so", offsets, std::nullopt, soon(), folder / "debug");
}

TEST(symbols, name_a_function_of_a_real_program) {
  const auto address = reinterpret_cast<std::uint64_t>(&corral_test::function_with_a_name);
  Dl_info info;
  link_map* map = nullptr;
  ASSERT_NE(dladdr1(reinterpret_cast<void*>(address), &info, reinterpret_cast<void**>(&map),
                    RTLD_DL_LINKMAP),
            0);
  const std::string path = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::uint64_t offset = address - map->l_addr;
  const Names names = function_names(path, {offset, offset + 1, 3}, std::nullopt, soon());
  const std::string name = "corral_test::function_with_a_name(int, char const*)";
  EXPECT_EQ(names, (Names{{offset, name}, {offset + 1, name}}));
}

TEST(symbols, take_the_one_that_begins_last_and_prefer_global_ones) {
  const std::string file = elf_file({{"outer", 0x1000, 0x100},
                                     {"local", 0x1020, 0x10, STB_LOCAL},
                                     {"_Z5innerv", 0x1020, 0x10},
                                     {"weak", 0x1020, 0x10, STB_WEAK},
                                     {"empty", 0x1200, 0},
                                     {"outside", 0x3000, 0x10}});
  EXPECT_EQ(names_in(file, {0x1000, 0x1020, 0x102F, 0x1030, 0x10FF, 0x1100, 0x1200, 0x3000}),
            (Names{{0x1000, "outer"},
                   {0x1020, "inner()"},
                   {0x102F, "inner()"},
                   {0x1030, "outer"},
                   {0x10FF, "outer"}}));
}

TEST(symbols, a_name_without_its_end_is_none) {
  EXPECT_EQ(names_in(elf_file({{"whole", 0x1000, 1}, {"cut", 0x1010, 1}}, false), {0x1000, 0x1010}),
            (Names{{0x1000, "whole"}}));
}

TEST(symbols, come_from_the_separate_file_of_the_same_build) {
  const Folder folder;
  std::filesystem::create_directories(folder / "debug/.build-id/ab");
  ASSERT_TRUE(write_file(folder / "stripped.so", elf_file({})));
  const std::string debug = folder / "debug/.build-id/ab/0102ef.debug";
  ASSERT_TRUE(write_file(debug, elf_file({{"found", 0x1000, 1}})));
  const auto find = [&] {
    return function_names(folder / "stripped.so", {0x1000}, std::nullopt, soon(), folder / "debug");
  };
  EXPECT_EQ(find(), (Names{{0x1000, "found"}}));
  std::string other = elf_file({{"found", 0x1000, 1}});
  other[other.find("\xAB\x01")] = '\x11';
  ASSERT_TRUE(write_file(debug, other));
  EXPECT_EQ(find(), Names{});
}

TEST(symbols, a_file_changed_since_names_nothing) {
  const Folder folder;
  ASSERT_TRUE(write_file(folder / "module.so", elf_file({{"name", 0x1000, 1}})));
  struct stat status{};
  ASSERT_EQ(stat((folder / "module.so").c_str(), &status), 0);
  const std::int64_t changed =
      std::int64_t{status.st_ctim.tv_sec} * 1'000'000'000 + status.st_ctim.tv_nsec;
  EXPECT_EQ(function_names(folder / "module.so", {0x1000}, changed, soon()).size(), 1U);
  EXPECT_EQ(function_names(folder / "module.so", {0x1000}, changed - 1, soon()).size(), 0U);
}

TEST(symbols, only_regular_files_are_opened) {
  const Folder folder;
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  ASSERT_EQ(symlink((folder / "fifo").c_str(), (folder / "link").c_str()), 0);
  for (const std::string& path :
       {folder / "fifo", folder / "link", folder / "missing", folder / "", std::string("/dev/zero"),
        std::string("/proc/self/mem"), std::string("linux-vdso.so.1"), std::string()})
    EXPECT_EQ(function_names(path, {0x1000}, std::nullopt, soon()), Names{}) << path;
}

TEST(symbols, broken_files_name_nothing_that_is_not_there) {
  const std::string file = elf_file({{"one", 0x1000, 0x10}, {"_Z3twov", 0x1010, 0x10}});
  const std::set<std::uint64_t> offsets = {0x1000, 0x1015, ~std::uint64_t{0}};
  ASSERT_EQ(names_in(file, offsets).size(), 2U);
  const Folder folder;
  const std::string path = folder / "broken.so";
  const auto look = [&](const std::string& content) {
    ASSERT_TRUE(write_file(path, content));
    for (const auto& [offset, name] :
         function_names(path, offsets, std::nullopt, soon(), folder / "debug"))
      EXPECT_LT(name.size(), 20U);
  };
  for (std::size_t i = 0; i < file.size(); ++i) {
    look(file.substr(0, i));
    for (const int value : {0x00, 0x01, 0x7F, 0x80, 0xFF}) {
      std::string broken = file;
      broken[i] = static_cast<char>(value);
      look(broken);
    }
  }
}

TEST(symbols, a_huge_file_that_says_it_is_all_symbols_ends_at_the_deadline) {
  const Folder folder;
  std::string file = elf_file({{"name", 0x1000, 1}});
  Elf64_Shdr symtab{};
  const std::size_t at = sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Phdr) + sizeof(Elf64_Shdr);
  std::memcpy(&symtab, file.data() + at, sizeof symtab);
  symtab.sh_size = std::uint64_t{1} << 46;
  std::memcpy(file.data() + at, &symtab, sizeof symtab);
  ASSERT_TRUE(write_file(folder / "huge.so", file));
  std::filesystem::resize_file(folder / "huge.so", std::uint64_t{1} << 42);  // takes no room
  const auto begin = std::chrono::steady_clock::now();
  function_names(folder / "huge.so", {0x1000}, std::nullopt, begin + std::chrono::milliseconds(50));
  SUCCEED() << "it came back";
}

TEST(demangled, writes_names_as_people_do) {
  EXPECT_EQ(demangled("_ZN2at4cuda4initEv"), "at::cuda::init()");
  EXPECT_EQ(demangled("cuDevicePrimaryCtxRetain"), "cuDevicePrimaryCtxRetain");
  EXPECT_EQ(demangled("_Z"), "_Z");
  EXPECT_EQ(demangled("_Znonsense"), "_Znonsense");
  EXPECT_EQ(demangled(""), "");
}

TEST(demangled, short_names_that_stand_for_very_much_are_cut) {
  // f(X<int, int>, X<that, that>, X<that, that>, …): each twice as long as the one before.
  std::string name = "_Z1f1XIiiE";
  const auto substitution = [](int n) {
    const std::string digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    std::string text;
    for (; n > 0; n /= 36) text.insert(0, 1, digits[static_cast<std::size_t>(n % 36)]);
    return "S" + (text.empty() ? "0" : text) + "_";
  };
  for (int i = 0; i < 35; ++i) name += "S_I" + substitution(i) + substitution(i) + "E";
  const std::string text = demangled(name);
  EXPECT_TRUE(text.starts_with("f(X<int, int>, X<X<int, int>, X<int, int> >")) << text;
  EXPECT_LT(text.size(), 1100U);
  EXPECT_LT(demangled(std::string(100000, 'x')).size(), 1100U);
  EXPECT_LT(demangled("_Z" + std::string(100000, 'N')).size(), 1100U);
  EXPECT_LT(demangled("_Z1f" + std::string(16000, 'P')).size(), 1100U);
}

TEST(name_functions, fills_the_frames_of_contexts_and_inits) {
  const Folder folder;
  ASSERT_TRUE(write_file(folder / "module.so", elf_file({{"_Z4maked", 0x1000, 0x10}})));
  snapshot::Run run;
  const NativeFrame known{.module = folder / "module.so", .function = {}, .offset = 0x1005};
  const NativeFrame unknown{.module = folder / "module.so", .function = {}, .offset = 0x1FFF};
  run.contexts.emplace_back().stack.native = {known, unknown};
  run.inits.emplace_back().stack.native = {{}, known};
  name_functions(run);
  EXPECT_EQ(run.contexts[0].stack.native[0].function, "make(double)");
  EXPECT_EQ(run.contexts[0].stack.native[1].function, "");
  EXPECT_EQ(run.inits[0].stack.native[0].function, "");
  EXPECT_EQ(run.inits[0].stack.native[1].function, "make(double)");
  EXPECT_TRUE(run.remarks.empty());

  // The module was changed after the stack was taken.
  run.contexts[0].stack.native[0].function.clear();
  run.started_realtime_ns = 1;
  name_functions(run);
  EXPECT_EQ(run.contexts[0].stack.native[0].function, "");
}

}  // namespace
}  // namespace corral::snapshot

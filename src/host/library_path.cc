// SPDX-License-Identifier: Apache-2.0
#include "host/library_path.h"

#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "base/file.h"
#include "base/text.h"

namespace corral::host {
namespace {

constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
constexpr std::size_t kHeaderBytes = 48;
constexpr std::size_t kEntryBytes = 24;

// Entry flags: ELF library (3) with the ABI in the second byte.
#if defined(__x86_64__)
constexpr std::uint32_t kFlags = 0x0303;
constexpr std::array<std::string_view, 6> kDefaultFolders = {"/lib/x86_64-linux-gnu",
                                                             "/usr/lib/x86_64-linux-gnu",
                                                             "/lib64",
                                                             "/usr/lib64",
                                                             "/lib",
                                                             "/usr/lib"};
#elif defined(__aarch64__)
constexpr std::uint32_t kFlags = 0x0a03;
constexpr std::array<std::string_view, 6> kDefaultFolders = {"/lib/aarch64-linux-gnu",
                                                             "/usr/lib/aarch64-linux-gnu",
                                                             "/lib64",
                                                             "/usr/lib64",
                                                             "/lib",
                                                             "/usr/lib"};
#else
#error "the loader cache's flags of this architecture are not known here"
#endif

std::uint32_t u32(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// The text at an offset from the start of the cache; nullopt when it runs out of it.
std::optional<std::string_view> text_at(std::string_view cache, std::size_t at) {
  if (at >= cache.size()) return std::nullopt;
  const std::size_t end = cache.find('\0', at);
  if (end == std::string_view::npos) return std::nullopt;
  return cache.substr(at, end - at);
}

bool readable(const std::string& path) { return ::access(path.c_str(), R_OK) == 0; }

}  // namespace

std::vector<std::string> find_in_loader_cache(std::string_view cache, std::string_view soname) {
  std::vector<std::string> found;
  // An old-format header may come first; the new one follows it, aligned.
  const std::size_t start = cache.find(kMagic);
  if (start == std::string_view::npos) return found;
  cache.remove_prefix(start);
  if (cache.size() < kHeaderBytes) return found;
  const std::size_t count = u32(cache, kMagic.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t entry = kHeaderBytes + i * kEntryBytes;
    if (entry + kEntryBytes > cache.size()) break;
    if (u32(cache, entry) != kFlags) continue;
    const auto key = text_at(cache, u32(cache, entry + 4));
    const auto path = text_at(cache, u32(cache, entry + 8));
    if (key && path && *key == soname) found.emplace_back(*path);
  }
  return found;
}

std::optional<std::string> find_library(const Root& root, std::string_view soname,
                                        std::string_view library_path) {
  for (const std::string_view folder : split(library_path, ':')) {
    if (folder.empty()) continue;
    std::string path = std::string(folder) + "/" + std::string(soname);
    if (readable(path)) return path;
  }
  if (const auto cache = read_file(root.path("/etc/ld.so.cache")))
    for (const std::string& path : find_in_loader_cache(*cache, soname))
      if (readable(root.path(path))) return root.path(path);
  for (const std::string_view folder : kDefaultFolders) {
    std::string path = root.path(folder) + "/" + std::string(soname);
    if (readable(path)) return path;
  }
  return std::nullopt;
}

}  // namespace corral::host

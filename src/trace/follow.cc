// SPDX-License-Identifier: Apache-2.0
#include "trace/follow.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/file.h"
#include "trace/regular_file.h"

namespace corral::trace {
namespace {

constexpr std::uint64_t kMaxFileBytes = 1U << 20;
constexpr std::uint64_t kMaxLookBytes = 16U << 20;

Result<std::string> read_at(const Fd& file, std::uint64_t offset, std::uint64_t bytes) {
  std::string text(bytes, '\0');
  std::size_t used = 0;
  while (used < text.size()) {
    const ssize_t n = ::pread(file.get(), text.data() + used, text.size() - used,
                              static_cast<off_t>(offset + used));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_sys("read a trace", errno);
    if (n == 0) break;
    used += static_cast<std::size_t>(n);
  }
  text.resize(used);
  return text;
}

// How many bytes the whole records at the beginning take. What is no record counts too: the parser
// will say so.
std::size_t whole_records(std::string_view text) {
  std::size_t whole = 0;
  while (text.size() - whole >= sizeof(wire::RecordHeader)) {
    wire::RecordHeader header;
    std::memcpy(&header, text.data() + whole, sizeof header);
    if (header.size < sizeof header || header.size > wire::kMaxRecordBytes) return text.size();
    if (header.size > text.size() - whole) break;
    whole += header.size;
  }
  return whole;
}

}  // namespace

Result<ProcessTrace> FolderTail::read_more(const std::string& name, Followed& file,
                                           std::uint64_t& room_bytes) {
  const std::string path = folder_ + "/" + name;
  CORRAL_TRY(const RegularFile opened, open_regular_file(path));
  if (file.header.empty()) {
    CORRAL_TRY(std::string header, read_at(opened.fd, 0, sizeof(wire::FileHeader)));
    if (header.size() < sizeof(wire::FileHeader)) return ProcessTrace{};  // being written
    wire::FileHeader head;
    std::memcpy(&head, header.data(), sizeof head);
    if (head.header_bytes > wire::kMaxHeaderBytes) return fail(path + ": impossible header");
    CORRAL_TRY(header, read_at(opened.fd, 0, head.header_bytes));
    if (header.size() < head.header_bytes) return ProcessTrace{};
    file.offset = header.size();
    file.header = std::move(header);
  }
  const std::uint64_t left = opened.bytes > file.offset ? opened.bytes - file.offset : 0;
  CORRAL_TRY(std::string fresh,
             read_at(opened.fd, file.offset, std::min({left, room_bytes, kMaxFileBytes})));
  fresh.resize(whole_records(fresh));
  room_bytes -= fresh.size();
  file.offset += fresh.size();
  const std::string text = file.header + fresh;
  CORRAL_TRY(ProcessTrace trace, parse_trace(text, path));
  for (Event& init : trace.inits) {
    init.stack = {};
    file.inits.push_back(std::move(init));
  }
  trace.inits = file.inits;
  file.modules.merge(trace.modules);
  trace.modules = file.modules;
  file.left_alone = trace.damage.has_value();
  return trace;
}

std::vector<ProcessTrace> FolderTail::look() {
  std::vector<ProcessTrace> out;
  std::uint64_t room_bytes = kMaxLookBytes;
  const auto names = list_folder(folder_);
  if (!names) return out;
  for (const std::string& name : *names) {
    if (!name.ends_with(".trace")) continue;
    Followed& file = files_[name];
    struct stat status{};
    if (file.left_alone || room_bytes == 0 ||
        ::lstat((folder_ + "/" + name).c_str(), &status) != 0 ||
        static_cast<std::uint64_t>(status.st_size) <= file.offset)
      continue;
    auto trace = read_more(name, file, room_bytes);
    if (!trace)
      file.left_alone = true;
    else if (!trace->contexts.empty())
      out.push_back(*std::move(trace));
  }
  return out;
}

}  // namespace corral::trace

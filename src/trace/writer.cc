// SPDX-License-Identifier: Apache-2.0
// System calls are made directly: libc's wrappers are cancellation points, and other libraries in
// the process may replace them.
#include "trace/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace corral::trace {
namespace {

// Above what programs expect to get: the job's own descriptors keep the numbers that they would
// have without us.
constexpr int kLowestDescriptor = 512;
constexpr uint64_t kMaxFileBytes = 256ULL << 20;
constexpr size_t kMaxArgvBytes = 4096;
constexpr unsigned kMaxFilesOfOneProcess = 10000;

int open_at(const char* path, int flags) {
  return static_cast<int>(
      syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
}

void close_fd(int fd) { syscall(SYS_close, fd); }

bool stat_fd(int fd, struct stat& result) { return syscall(SYS_fstat, fd, &result) == 0; }

// A write beyond the file size limit would not only fail but kill the job with SIGXFSZ.
bool size_allowed(uint64_t file_bytes) {
  struct rlimit limit;
  if (syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, nullptr, &limit) != 0) return false;
  constexpr uint64_t kRoomForOtherThreads = 1U << 20;
  return limit.rlim_cur == RLIM_INFINITY || file_bytes + kRoomForOtherThreads <= limit.rlim_cur;
}

int move_up(int fd) {
  const long high = syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, kLowestDescriptor);
  if (high < 0) return fd;
  close_fd(fd);
  return static_cast<int>(high);
}

// Reads a small file of /proc; the number of bytes, 0 when it cannot be read.
size_t read_small(const char* path, char* buffer, size_t capacity) {
  const int fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0));
  if (fd < 0) return 0;
  size_t used = 0;
  while (used < capacity) {
    const long got = syscall(SYS_read, fd, buffer + used, capacity - used);
    if (got <= 0) break;
    used += static_cast<size_t>(got);
  }
  close_fd(fd);
  return used;
}

// Field 22 of /proc/self/stat. The second field is the name in parentheses and may hold anything,
// so the count begins behind the last ')'.
uint64_t own_start_time() {
  char text[1024];
  const size_t bytes = read_small("/proc/self/stat", text, sizeof text);
  size_t at = bytes;
  while (at > 0 && text[at - 1] != ')') --at;
  unsigned field = 2;
  for (; at < bytes && field < 22; ++at) {
    if (text[at] == ' ') ++field;
  }
  uint64_t value = 0;
  for (; at < bytes && text[at] >= '0' && text[at] <= '9'; ++at) {
    value = value * 10 + static_cast<uint64_t>(text[at] - '0');
  }
  return field == 22 ? value : 0;
}

struct PathBuilder {
  char* buffer;
  size_t capacity;
  size_t used = 0;
  bool fits = true;

  void add(const char* text) {
    const size_t bytes = strlen(text);
    if (used + bytes + 1 > capacity) {
      fits = false;
      return;
    }
    memcpy(buffer + used, text, bytes + 1);
    used += bytes;
  }
  void add(uint64_t value) {
    char digits[24];
    size_t at = sizeof digits;
    digits[--at] = '\0';
    do {
      digits[--at] = static_cast<char>('0' + value % 10);
      value /= 10;
    } while (value != 0);
    add(digits + at);
  }
};

bool name_file(char* path, size_t capacity, const char* folder, uint64_t pid, uint64_t start,
               unsigned number, const char* suffix) {
  PathBuilder builder{path, capacity};
  builder.add(folder);
  builder.add("/");
  builder.add(pid);
  builder.add("-");
  builder.add(start);
  if (number > 1) {
    builder.add(".");
    builder.add(number);
  }
  builder.add(suffix);
  return builder.fits;
}

bool write_whole(int fd, const char* data, size_t bytes) {
  return syscall(SYS_write, fd, data, bytes) == static_cast<long>(bytes);
}

uint32_t fill_header(char* scratch, uint64_t pid, uint64_t start) {
  auto* const header = reinterpret_cast<wire::FileHeader*>(scratch);
  memset(header, 0, sizeof *header);
  memcpy(header->magic, wire::kTraceMagic, sizeof header->magic);
  header->version = wire::kVersion;
  header->start_time_ticks = start;
  header->pid = static_cast<uint32_t>(pid);
  header->parent_pid = static_cast<uint32_t>(syscall(SYS_getppid));
  header->ticks_per_second = static_cast<uint32_t>(sysconf(_SC_CLK_TCK));
  struct stat info;
  if (syscall(SYS_newfstatat, AT_FDCWD, "/proc/self/ns/pid", &info, 0) == 0) {
    header->pid_namespace = info.st_ino;
  }
  char* at = scratch + sizeof *header;
  const long exe = syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", at, 4096);
  header->exe_bytes = static_cast<uint16_t>(exe > 0 ? exe : 0);
  at += header->exe_bytes;
  // One byte more than is kept tells whether there was more.
  const size_t argv = read_small("/proc/self/cmdline", at, kMaxArgvBytes + 1);
  if (argv > kMaxArgvBytes) header->flags = wire::kHeaderArgvCut;
  header->argv_bytes = static_cast<uint16_t>(argv > kMaxArgvBytes ? kMaxArgvBytes : argv);
  at += header->argv_bytes;
  // The result counts the final NUL.
  const long cwd = syscall(SYS_getcwd, at, 4096);
  header->cwd_bytes = static_cast<uint16_t>(cwd > 1 ? cwd - 1 : 0);
  at += header->cwd_bytes;
  while ((at - scratch) % wire::kAlignment != 0) *at++ = '\0';
  header->header_bytes = static_cast<uint32_t>(at - scratch);
  header->opened_monotonic_ns = clock_ns(CLOCK_MONOTONIC);
  header->opened_realtime_ns = clock_ns(CLOCK_REALTIME);
  return header->header_bytes;
}

// Null when there can be none. The file is written in full before it is mapped: a store to a page
// that the disk has no room for would be SIGBUS.
wire::CountersFile* create_counters(const char* path, uint64_t pid, uint64_t start, char* scratch) {
  static_assert(sizeof(wire::CountersFile) <= wire::kMaxHeaderBytes);
  const int fd = open_at(path, O_RDWR | O_CREAT | O_EXCL);
  if (fd < 0) return nullptr;
  auto* const file = reinterpret_cast<wire::CountersFile*>(scratch);
  memset(file, 0, sizeof *file);
  memcpy(file->magic, wire::kCountersMagic, sizeof file->magic);
  file->version = wire::kVersion;
  file->header_bytes = static_cast<uint32_t>(offsetof(wire::CountersFile, devices));
  file->device_bytes = sizeof(wire::DeviceCounters);
  file->device_count = wire::kMaxDevices;
  file->start_time_ticks = start;
  file->pid = static_cast<uint32_t>(pid);
  void* mapping = MAP_FAILED;
  syscall(SYS_fallocate, fd, 0, 0L, static_cast<long>(sizeof *file));  // best effort
  if (write_whole(fd, scratch, sizeof *file)) {
    mapping = mmap(nullptr, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  close_fd(fd);
  if (mapping == MAP_FAILED) {
    syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    return nullptr;
  }
  return static_cast<wire::CountersFile*>(mapping);
}

// True when the descriptor still is the trace file; opens the file again when it is not.
bool descriptor_ready(Writer& writer, struct stat& info) {
  const int fd = __atomic_load_n(&writer.fd, __ATOMIC_ACQUIRE);
  if (fd >= 0 && stat_fd(fd, info) && info.st_dev == writer.device && info.st_ino == writer.inode) {
    return true;
  }
  int fresh = open_at(writer.path, O_WRONLY | O_APPEND);
  if (fresh < 0) return false;
  if (!stat_fd(fresh, info) || info.st_dev != writer.device || info.st_ino != writer.inode) {
    close_fd(fresh);
    return false;
  }
  fresh = move_up(fresh);
  int expected = fd;
  if (!__atomic_compare_exchange_n(&writer.fd, &expected, fresh, false, __ATOMIC_ACQ_REL,
                                   __ATOMIC_ACQUIRE)) {
    close_fd(fresh);  // another thread was quicker
  }
  return true;
}

}  // namespace

int64_t clock_ns(int clock_id) {
  struct timespec now = {};
  clock_gettime(clock_id, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

RecordBuilder::RecordBuilder(char* buffer, uint32_t capacity, wire::Kind kind, uint32_t tid,
                             int64_t monotonic_ns)
    : buffer_(buffer),
      capacity_(capacity < wire::kMaxRecordBytes ? capacity : wire::kMaxRecordBytes),
      used_(sizeof(wire::RecordHeader)) {
  const wire::RecordHeader header = {.size = 0,
                                     .mark = wire::kRecordMark,
                                     .kind = kind,
                                     .tid = tid,
                                     .payload_bytes = 0,
                                     .monotonic_ns = monotonic_ns};
  memcpy(buffer_, &header, sizeof header);
}

void RecordBuilder::put_payload(const void* data, uint32_t bytes) {
  memcpy(buffer_ + used_, data, bytes);
  used_ += bytes;
  memcpy(buffer_ + offsetof(wire::RecordHeader, payload_bytes), &bytes, sizeof bytes);
}

char* RecordBuilder::field(wire::Tag tag, uint32_t bytes, bool cut) {
  const uint32_t whole = wire::align_up(static_cast<uint32_t>(sizeof(wire::FieldHeader)) + bytes);
  if (bytes > wire::kMaxRecordBytes || whole > room()) return nullptr;
  char* const at = buffer_ + used_;
  memset(at + whole - wire::kAlignment, 0, wire::kAlignment);
  const wire::FieldHeader header = {
      .tag = tag, .flags = cut ? wire::kFieldCut : uint16_t{0}, .bytes = bytes};
  memcpy(at, &header, sizeof header);
  used_ += whole;
  return at + sizeof header;
}

void RecordBuilder::text(wire::Tag tag, const char* data, size_t bytes, bool cut) {
  constexpr size_t kOverhead = sizeof(wire::FieldHeader) + wire::kAlignment;
  if (bytes + kOverhead > room()) {
    if (room() < kOverhead) return;
    bytes = room() - kOverhead;
    cut = true;
  }
  if (char* const at = field(tag, static_cast<uint32_t>(bytes), cut)) memcpy(at, data, bytes);
}

void RecordBuilder::python_frame(wire::Tag tag, uint32_t line, const char* file, size_t file_bytes,
                                 const char* function, size_t function_bytes) {
  if (file_bytes > 0xFFFF || function_bytes > 0xFFFF) return;
  const wire::PythonFrameData frame = {.line = line,
                                       .file_bytes = static_cast<uint16_t>(file_bytes),
                                       .function_bytes = static_cast<uint16_t>(function_bytes)};
  char* const at =
      field(tag, static_cast<uint32_t>(sizeof frame + file_bytes + function_bytes), false);
  if (at == nullptr) return;
  memcpy(at, &frame, sizeof frame);
  memcpy(at + sizeof frame, file, file_bytes);
  memcpy(at + sizeof frame + file_bytes, function, function_bytes);
}

void RecordBuilder::python_omitted(wire::Tag tag, uint64_t frames) {
  if (char* const at = field(tag, sizeof frames, false)) {
    memcpy(at, &frames, sizeof frames);
  }
}

void RecordBuilder::native_frames(const wire::NativeFrameData* frames, size_t count) {
  const size_t bytes = count * sizeof *frames;
  if (bytes > wire::kMaxRecordBytes) return;
  if (char* const at = field(wire::kNativeFrames, static_cast<uint32_t>(bytes), false)) {
    memcpy(at, frames, bytes);
  }
}

void RecordBuilder::finish() { memcpy(buffer_, &used_, sizeof used_); }

bool open_writer(Writer& writer, const char* folder, char* scratch) {
  if (folder[0] != '/') return false;  // the job may change its working folder
  const auto pid = static_cast<uint64_t>(syscall(SYS_getpid));
  const uint64_t start = own_start_time();
  const uint32_t header_bytes = fill_header(scratch, pid, start);
  if (!size_allowed(header_bytes)) return false;
  int fd = -1;
  unsigned number = 1;
  for (; number <= kMaxFilesOfOneProcess; ++number) {
    if (!name_file(writer.path, sizeof writer.path, folder, pid, start, number, ".trace")) {
      return false;
    }
    fd = open_at(writer.path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL);
    if (fd >= 0 || errno != EEXIST) break;
  }
  if (fd < 0) return false;
  struct stat info;
  if (!write_whole(fd, scratch, header_bytes) || !stat_fd(fd, info)) {
    close_fd(fd);
    syscall(SYS_unlinkat, AT_FDCWD, writer.path, 0);
    return false;
  }
  writer.device = info.st_dev;
  writer.inode = info.st_ino;
  writer.start_time_ticks = start;
  writer.broken = 0;
  writer.counters = nullptr;
  char counters_path[sizeof writer.path];
  if (name_file(counters_path, sizeof counters_path, folder, pid, start, number, ".counters")) {
    writer.counters = create_counters(counters_path, pid, start, scratch);
  }
  __atomic_store_n(&writer.fd, move_up(fd), __ATOMIC_RELEASE);
  return true;
}

bool append(Writer& writer, const RecordBuilder& record) {
  if (__atomic_load_n(&writer.broken, __ATOMIC_RELAXED)) return false;
  struct stat info;
  if (!descriptor_ready(writer, info)) return false;
  const uint64_t bytes_after = static_cast<uint64_t>(info.st_size) + record.size();
  if (bytes_after > kMaxFileBytes || !size_allowed(bytes_after)) return false;
  const int fd = __atomic_load_n(&writer.fd, __ATOMIC_ACQUIRE);
  const long written = syscall(SYS_write, fd, record.data(), record.size());
  if (written == static_cast<long>(record.size())) return true;
  if (written > 0) __atomic_store_n(&writer.broken, 1, __ATOMIC_RELAXED);
  return false;
}

void close_descriptor(Writer& writer) {
  const int fd = __atomic_exchange_n(&writer.fd, -1, __ATOMIC_ACQ_REL);
  struct stat info;
  if (fd >= 0 && stat_fd(fd, info) && info.st_dev == writer.device && info.st_ino == writer.inode) {
    close_fd(fd);
  }
}

}  // namespace corral::trace

// SPDX-License-Identifier: Apache-2.0
#include "shim/safe_read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace corral::shim {
namespace {

// Older container runtimes refuse process_vm_readv; a process may always read its own memory file.
size_t read_memory_file(void* to, const void* from, size_t bytes) {
  const long fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/mem", O_RDONLY | O_CLOEXEC, 0);
  if (fd < 0) return 0;
  const long got = syscall(SYS_pread64, fd, to, bytes, reinterpret_cast<uintptr_t>(from));
  syscall(SYS_close, fd);
  return got > 0 ? static_cast<size_t>(got) : 0;
}

}  // namespace

size_t safe_read(void* to, const void* from, size_t bytes, long pid) {
  // The kernel gives whole pieces only, so a piece must not reach into a page that may be missing.
  constexpr size_t kPageBytes = 4096;
  constexpr size_t kPieces = 16;
  size_t done = 0;
  while (done < bytes) {
    struct iovec remote[kPieces];
    size_t pieces = 0;
    size_t planned = 0;
    while (pieces < kPieces && done + planned < bytes) {
      const uintptr_t at = reinterpret_cast<uintptr_t>(from) + done + planned;
      const size_t to_page_end = kPageBytes - at % kPageBytes;
      const size_t left = bytes - done - planned;
      remote[pieces].iov_base = reinterpret_cast<void*>(at);
      remote[pieces].iov_len = left < to_page_end ? left : to_page_end;
      planned += remote[pieces++].iov_len;
    }
    struct iovec local = {static_cast<char*>(to) + done, planned};
    const long got = syscall(SYS_process_vm_readv, pid, &local, 1UL, remote, pieces, 0UL);
    if (got < 0 && (errno == EPERM || errno == ENOSYS)) {
      return done + read_memory_file(local.iov_base, remote[0].iov_base, bytes - done);
    }
    if (got <= 0) return done;
    done += static_cast<size_t>(got);
    if (static_cast<size_t>(got) < planned) return done;
  }
  return done;
}

size_t safe_read(void* to, const void* from, size_t bytes) {
  return safe_read(to, from, bytes, syscall(SYS_getpid));
}

}  // namespace corral::shim

// SPDX-License-Identifier: Apache-2.0
#include "ring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int ring_make(struct io_uring_params* params) {
  memset(params, 0, sizeof *params);
  return (int)syscall(SYS_io_uring_setup, kRingEntries, params);
}

static void* map(int ring, size_t length, off_t offset) {
  return mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, offset);
}

static uint32_t* word(void* base, uint32_t offset) { return (uint32_t*)((char*)base + offset); }

int ring_open(int ring, const struct io_uring_params* params, const char* path, int flags) {
  void* submit =
      map(ring, params->sq_off.array + params->sq_entries * sizeof(uint32_t), IORING_OFF_SQ_RING);
  void* complete = map(ring, params->cq_off.cqes + params->cq_entries * sizeof(struct io_uring_cqe),
                       IORING_OFF_CQ_RING);
  struct io_uring_sqe* entries =
      map(ring, params->sq_entries * sizeof(struct io_uring_sqe), IORING_OFF_SQES);
  if (submit == MAP_FAILED || complete == MAP_FAILED || entries == MAP_FAILED) return -errno;

  const uint32_t tail = *word(submit, params->sq_off.tail);
  const uint32_t index = tail & *word(submit, params->sq_off.ring_mask);
  memset(&entries[index], 0, sizeof entries[index]);
  entries[index].opcode = IORING_OP_OPENAT;
  entries[index].fd = AT_FDCWD;
  entries[index].addr = (uintptr_t)path;
  entries[index].open_flags = (uint32_t)flags;
  word(submit, params->sq_off.array)[index] = index;
  __atomic_store_n(word(submit, params->sq_off.tail), tail + 1, __ATOMIC_RELEASE);

  if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0) return -errno;
  const uint32_t head = *word(complete, params->cq_off.head);
  const struct io_uring_cqe* results = (const void*)((char*)complete + params->cq_off.cqes);
  const int result = results[head & *word(complete, params->cq_off.ring_mask)].res;
  __atomic_store_n(word(complete, params->cq_off.head), head + 1, __ATOMIC_RELEASE);
  return result;
}

// SPDX-License-Identifier: Apache-2.0
// A 32-bit program without a C library that opens argv[1] in mode 3 (argv[2] given: for reading).
// Exit 0: it got the node; 1: refused with EACCES or EPERM, or /dev/null (1:3) lay over it; 77: any
// other way to fail.

static int call(int number, int a, int b, int c) {
  int result;
  __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
  return result;
}

__attribute__((used)) void start(int* stack) {
  enum { kExit = 1, kOpen = 5, kFstat64 = 197, kPermission = -1, kAccess = -13, kNull = 0x103 };
  const int fd = call(kOpen, stack[2], stack[0] > 2 ? 0 : 3, 0);
  unsigned status[24];  // struct stat64 of i386; the device number of a node is at byte 32
  const int covered = fd >= 0 && call(kFstat64, fd, (int)status, 0) == 0 && status[8] == kNull;
  call(kExit, fd >= 0 ? covered : fd == kPermission || fd == kAccess ? 1 : 77, 0, 0);
}

__asm__(".globl _start\n_start:\n\tmov %esp, %eax\n\tpush %eax\n\tcall start\n");

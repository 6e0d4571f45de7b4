// SPDX-License-Identifier: Apache-2.0
// A 32-bit program without a C library that opens argv[1] in mode 3 (argv[2] given: for reading).
// Exit 0: it got the node; 1: refused with EACCES or EPERM; 77: any other way to fail.

static int call(int number, int a, int b, int c) {
  int result;
  __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
  return result;
}

__attribute__((used)) void start(int* stack) {
  enum { kExit = 1, kOpen = 5, kPermission = -1, kAccess = -13 };
  const int fd = call(kOpen, stack[2], stack[0] > 2 ? 0 : 3, 0);
  call(kExit, fd >= 0 ? 0 : fd == kPermission || fd == kAccess ? 1 : 77, 0, 0);
}

__asm__(".globl _start\n_start:\n\tmov %esp, %eax\n\tpush %eax\n\tcall start\n");

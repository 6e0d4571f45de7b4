// SPDX-License-Identifier: Apache-2.0
// The filter, run by a small evaluator of classic BPF over calls of every convention.
#include "isolate/seccomp.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace corral::isolate {
namespace {

// What the program answers for one call; the subset of classic BPF that the kernel lets a filter
// use and ours needs. A program that leaves it fails the test.
std::uint32_t evaluate(const std::vector<sock_filter>& program, const seccomp_data& data) {
  std::uint32_t accumulator = 0;
  for (std::size_t at = 0; at < program.size(); ++at) {
    const sock_filter& step = program[at];
    switch (step.code) {
      case BPF_LD | BPF_W | BPF_ABS:
        if (step.k + sizeof accumulator > sizeof data) {
          ADD_FAILURE() << "load behind the end at " << at;
          return 0;
        }
        std::memcpy(&accumulator, reinterpret_cast<const char*>(&data) + step.k,
                    sizeof accumulator);
        break;
      case BPF_ALU | BPF_AND | BPF_K:
        accumulator &= step.k;
        break;
      case BPF_JMP | BPF_JEQ | BPF_K:
        at += accumulator == step.k ? step.jt : step.jf;
        break;
      case BPF_JMP | BPF_JGE | BPF_K:
        at += accumulator >= step.k ? step.jt : step.jf;
        break;
      case BPF_RET | BPF_K:
        return step.k;
      default:
        ADD_FAILURE() << "instruction " << step.code << " at " << at;
        return 0;
    }
  }
  ADD_FAILURE() << "ran over the end";
  return 0;
}

constexpr std::uint32_t kAllow = SECCOMP_RET_ALLOW;
std::uint32_t refused(int error) { return SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error); }

struct Call {
  const char* name;
  std::uint32_t arch;
  int number;
  std::uint64_t arguments[3];
  std::uint32_t normal;
  std::uint32_t tight;
};

std::uint32_t answer(const Call& call, bool cgroup_exits) {
  seccomp_data data{};
  data.arch = call.arch;
  data.nr = call.number;
  std::copy(std::begin(call.arguments), std::end(call.arguments), std::begin(data.args));
  return evaluate(build_filter({.cgroup_exits = cgroup_exits}), data);
}

#if defined(__x86_64__)
constexpr std::uint32_t kX86 = AUDIT_ARCH_X86_64;
constexpr std::uint32_t kI386 = AUDIT_ARCH_I386;
constexpr int kX32 = 0x40000000;

const Call kCalls[] = {
    {"open read", kX86, 2, {0, O_RDONLY}, kAllow, kAllow},
    {"open write", kX86, 2, {0, O_WRONLY | O_CREAT}, kAllow, kAllow},
    {"open read-write", kX86, 2, {0, O_RDWR | O_CLOEXEC}, kAllow, kAllow},
    {"open mode 3", kX86, 2, {0, 3}, refused(EACCES), refused(EACCES)},
    {"open mode 3, more flags", kX86, 2, {0, 3 | O_CLOEXEC}, refused(EACCES), refused(EACCES)},
    {"open mode 3, high word set",
     kX86,
     2,
     {0, (7ULL << 32) | 3},
     refused(EACCES),
     refused(EACCES)},
    {"open, high word 3", kX86, 2, {0, 3ULL << 32}, kAllow, kAllow},
    {"openat read", kX86, 257, {3, 3, O_RDONLY}, kAllow, kAllow},
    {"openat mode 3", kX86, 257, {0, 0, 3}, refused(EACCES), refused(EACCES)},
    {"openat2", kX86, 437, {}, refused(ENOSYS), refused(ENOSYS)},
    {"io_uring_setup", kX86, 425, {}, refused(ENOSYS), refused(ENOSYS)},
    {"io_uring_enter", kX86, 426, {}, refused(ENOSYS), refused(ENOSYS)},
    {"io_uring_register", kX86, 427, {}, refused(ENOSYS), refused(ENOSYS)},
    {"open_by_handle_at", kX86, 304, {}, refused(EPERM), refused(EPERM)},
    {"mknod char", kX86, 133, {0, S_IFCHR | 0600, 5}, refused(EPERM), refused(EPERM)},
    {"mknod block", kX86, 133, {0, S_IFBLK | 0600, 5}, refused(EPERM), refused(EPERM)},
    {"mknod fifo", kX86, 133, {0, S_IFIFO | 0600}, kAllow, kAllow},
    {"mknod socket", kX86, 133, {0, S_IFSOCK | 0600}, kAllow, kAllow},
    {"mknod regular", kX86, 133, {0, 0600}, kAllow, kAllow},
    {"mknodat char", kX86, 259, {0, 0, S_IFCHR}, refused(EPERM), refused(EPERM)},
    {"mknodat fifo", kX86, 259, {0, 0, S_IFIFO}, kAllow, kAllow},
    {"clone3", kX86, 435, {}, kAllow, refused(ENOSYS)},
    {"bpf", kX86, 321, {}, kAllow, refused(EPERM)},
    {"read", kX86, 0, {3}, kAllow, kAllow},
    {"ioctl", kX86, 16, {3, 3, 3}, kAllow, kAllow},
    {"execve", kX86, 59, {}, kAllow, kAllow},
    {"ptrace", kX86, 101, {}, kAllow, kAllow},
    {"pidfd_getfd", kX86, 438, {}, kAllow, kAllow},
    {"x32 read", kX86, kX32 + 0, {}, refused(ENOSYS), refused(ENOSYS)},
    {"x32 open mode 3", kX86, kX32 + 2, {0, 3}, refused(ENOSYS), refused(ENOSYS)},
    {"number -1", kX86, -1, {}, refused(ENOSYS), refused(ENOSYS)},
    {"i386 open read", kI386, 5, {0, O_RDONLY}, kAllow, kAllow},
    {"i386 open mode 3", kI386, 5, {0, 3}, refused(EACCES), refused(EACCES)},
    {"i386 openat mode 3", kI386, 295, {0, 0, 3}, refused(EACCES), refused(EACCES)},
    {"i386 openat2", kI386, 437, {}, refused(ENOSYS), refused(ENOSYS)},
    {"i386 io_uring_setup", kI386, 425, {}, refused(ENOSYS), refused(ENOSYS)},
    {"i386 open_by_handle_at", kI386, 342, {}, refused(EPERM), refused(EPERM)},
    {"i386 mknod char", kI386, 14, {0, S_IFCHR}, refused(EPERM), refused(EPERM)},
    {"i386 mknodat block", kI386, 297, {0, 0, S_IFBLK}, refused(EPERM), refused(EPERM)},
    {"i386 bpf", kI386, 357, {}, kAllow, refused(EPERM)},
    {"i386 clone3", kI386, 435, {}, kAllow, refused(ENOSYS)},
    {"i386 exit", kI386, 1, {}, kAllow, kAllow},
    // Numbers mean other things elsewhere: 257 is remap_file_pages, 304 sync_file_range there.
    {"i386 257", kI386, 257, {0, 0, 3}, kAllow, kAllow},
    {"i386 304", kI386, 304, {}, kAllow, kAllow},
    {"x86-64 5 (fstat)", kX86, 5, {0, 3}, kAllow, kAllow},
    {"another processor", AUDIT_ARCH_MIPS, 2, {}, refused(ENOSYS), refused(ENOSYS)},
};

TEST(seccomp, answers_every_call_of_every_convention) {
  for (const Call& call : kCalls) {
    EXPECT_EQ(answer(call, false), call.normal) << call.name;
    EXPECT_EQ(answer(call, true), call.tight) << call.name << " (cgroup exits)";
  }
}
#elif defined(__aarch64__)
const Call kCalls[] = {
    {"openat read", AUDIT_ARCH_AARCH64, 56, {0, 0, O_RDONLY}, kAllow, kAllow},
    {"openat mode 3", AUDIT_ARCH_AARCH64, 56, {0, 0, 3}, refused(EACCES), refused(EACCES)},
    {"open_by_handle_at", AUDIT_ARCH_AARCH64, 265, {}, refused(EPERM), refused(EPERM)},
    {"mknodat char", AUDIT_ARCH_AARCH64, 33, {0, 0, S_IFCHR}, refused(EPERM), refused(EPERM)},
    {"arm open mode 3", AUDIT_ARCH_ARM, 5, {0, 3}, refused(EACCES), refused(EACCES)},
    {"another processor", AUDIT_ARCH_X86_64, 2, {}, refused(ENOSYS), refused(ENOSYS)},
};

TEST(seccomp, answers_every_call_of_every_convention) {
  for (const Call& call : kCalls) EXPECT_EQ(answer(call, false), call.normal) << call.name;
}
#endif

TEST(seccomp, every_call_number_is_answered_without_leaving_the_program) {
  for (const std::uint32_t arch :
       std::initializer_list<std::uint32_t>{AUDIT_ARCH_X86_64, AUDIT_ARCH_I386, AUDIT_ARCH_AARCH64})
    for (int number = 0; number < 600; ++number)
      for (const bool exits : {false, true}) {
        const std::uint32_t found = answer({"", arch, number, {3, 3, 3}, 0, 0}, exits);
        EXPECT_TRUE(found == kAllow || (found & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO);
      }
}

TEST(seccomp, fits_the_kernels_limit) {
  EXPECT_LT(build_filter({.cgroup_exits = true}).size(), std::size_t{BPF_MAXINSNS});
}

}  // namespace
}  // namespace corral::isolate

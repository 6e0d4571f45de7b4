// SPDX-License-Identifier: Apache-2.0
#include "isolate/seccomp.h"

#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace corral::isolate {
namespace {

constexpr std::uint32_t kX32Bit = 0x40000000;
constexpr std::uint32_t kModeMask = 3;  // O_ACCMODE

// System call numbers of one convention; -1 where it has no such call. Numbers from 403 on are the
// same everywhere.
struct Convention {
  std::uint32_t audit_arch;
  bool refuse_x32;
  int open;
  int openat;
  int mknod;
  int mknodat;
  int open_by_handle_at;
  int bpf;
};

constexpr int kIoUringSetup = 425;
constexpr int kIoUringEnter = 426;
constexpr int kIoUringRegister = 427;
constexpr int kClone3 = 435;
constexpr int kOpenat2 = 437;

#if defined(__x86_64__)
constexpr Convention kConventions[] = {
    {AUDIT_ARCH_X86_64, true, 2, 257, 133, 259, 304, 321},
    {AUDIT_ARCH_I386, false, 5, 295, 14, 297, 342, 357},
};
#elif defined(__aarch64__)
constexpr Convention kConventions[] = {
    {AUDIT_ARCH_AARCH64, false, -1, 56, -1, 33, 265, 280},
    {AUDIT_ARCH_ARM, false, 5, 322, 14, 324, 371, 386},
};
#else
#error "the system call numbers of this processor are not known to the seccomp filter"
#endif

// Code is only ever appended; every jump goes forward over a block whose length is known when the
// jump is written.
class Assembler {
 public:
  std::vector<sock_filter> take() { return std::move(code_); }
  std::size_t size() const { return code_.size(); }

  void load(std::size_t offset) {
    code_.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset)));
  }
  // Arguments are 64 bits wide; flags and modes are ints, so the low word is what the kernel uses.
  void load_argument(unsigned index) {
    load(offsetof(seccomp_data, args) + index * sizeof(std::uint64_t));
  }
  void mask(std::uint32_t bits) { code_.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, bits)); }
  void allow() { code_.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)); }
  void refuse(int error) {
    code_.push_back(
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error)));
  }
  void if_equal(std::uint32_t value, std::uint8_t skip_true, std::uint8_t skip_false) {
    code_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, skip_true, skip_false));
  }
  void if_at_least(std::uint32_t value, std::uint8_t skip_true, std::uint8_t skip_false) {
    code_.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, value, skip_true, skip_false));
  }
  void append(const std::vector<sock_filter>& block) {
    code_.insert(code_.end(), block.begin(), block.end());
  }

 private:
  std::vector<sock_filter> code_;
};

// With the call's number loaded: `block` when it is `number`, else go on behind it.
void on_call(Assembler& code, int number, const std::vector<sock_filter>& block) {
  if (number < 0) return;
  code.if_equal(static_cast<std::uint32_t>(number), 0, static_cast<std::uint8_t>(block.size()));
  code.append(block);
}

std::vector<sock_filter> always(int error) {
  Assembler code;
  code.refuse(error);
  return code.take();
}

std::vector<sock_filter> refuse_mode_3(unsigned flags_argument) {
  Assembler code;
  code.load_argument(flags_argument);
  code.mask(kModeMask);
  code.if_equal(kModeMask, 0, 1);
  code.refuse(EACCES);
  code.allow();
  return code.take();
}

std::vector<sock_filter> refuse_devices(unsigned mode_argument) {
  Assembler code;
  code.load_argument(mode_argument);
  code.mask(S_IFMT);
  code.if_equal(S_IFCHR, 1, 0);
  code.if_equal(S_IFBLK, 0, 1);
  code.refuse(EPERM);
  code.allow();
  return code.take();
}

std::vector<sock_filter> section(const Convention& convention, const FilterOptions& options) {
  Assembler code;
  code.load(offsetof(seccomp_data, nr));
  if (convention.refuse_x32) {
    code.if_at_least(kX32Bit, 0, 1);
    code.refuse(ENOSYS);
  }
  on_call(code, convention.open, refuse_mode_3(1));
  on_call(code, convention.openat, refuse_mode_3(2));
  on_call(code, kOpenat2, always(ENOSYS));
  on_call(code, kIoUringSetup, always(ENOSYS));
  on_call(code, kIoUringEnter, always(ENOSYS));
  on_call(code, kIoUringRegister, always(ENOSYS));
  on_call(code, convention.open_by_handle_at, always(EPERM));
  on_call(code, convention.mknod, refuse_devices(1));
  on_call(code, convention.mknodat, refuse_devices(2));
  if (options.cgroup_exits) {
    on_call(code, kClone3, always(ENOSYS));
    on_call(code, convention.bpf, always(EPERM));
  }
  code.allow();
  return code.take();
}

}  // namespace

std::vector<sock_filter> build_filter(const FilterOptions& options) {
  Assembler code;
  code.load(offsetof(seccomp_data, arch));
  for (const Convention& convention : kConventions) {
    const std::vector<sock_filter> block = section(convention, options);
    code.if_equal(convention.audit_arch, 0, static_cast<std::uint8_t>(block.size()));
    code.append(block);
  }
  code.refuse(ENOSYS);
  return code.take();
}

Result<void> enter_filter(std::span<const sock_filter> filter) {
  sock_fprog program{.len = static_cast<unsigned short>(filter.size()),
                     .filter = const_cast<sock_filter*>(filter.data())};
  // SPEC_ALLOW: kernels before 5.16 otherwise switch on a mitigation that slows the whole job.
  if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) ==
      0)
    return {};
  if (errno == EINVAL &&
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0)  // before 4.17
    return {};
  return fail_sys("seccomp filter", errno);
}

bool filter_available() {
  const std::uint32_t action = SECCOMP_RET_ERRNO;
  return ::syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

}  // namespace corral::isolate

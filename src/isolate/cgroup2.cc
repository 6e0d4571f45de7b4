// SPDX-License-Identifier: Apache-2.0
#include "isolate/cgroup2.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"
#include "base/file.h"

namespace corral::isolate {
namespace {

// Short names for the few instructions that are needed (kernel: instruction-set.rst).
bpf_insn instruction(unsigned code, unsigned to, unsigned from, short offset, int value) {
  bpf_insn insn{};
  insn.code = static_cast<__u8>(code);
  insn.dst_reg = to & 0xf;
  insn.src_reg = from & 0xf;
  insn.off = offset;
  insn.imm = value;
  return insn;
}
bpf_insn load_word(unsigned to, unsigned from, std::size_t offset) {
  return instruction(BPF_LDX | BPF_MEM | BPF_W, to, from, static_cast<short>(offset), 0);
}
bpf_insn and_value(unsigned reg, int value) {
  return instruction(BPF_ALU64 | BPF_AND | BPF_K, reg, 0, 0, value);
}
bpf_insn move_value(unsigned reg, int value) {
  return instruction(BPF_ALU64 | BPF_MOV | BPF_K, reg, 0, 0, value);
}
bpf_insn skip_unless_equal(unsigned reg, unsigned value, short skip) {
  return instruction(BPF_JMP | BPF_JNE | BPF_K, reg, 0, skip, static_cast<int>(value));
}
bpf_insn leave() { return instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0); }

Result<Fd> open_group(const std::string& folder) {
  return open_file(folder, O_RDONLY | O_DIRECTORY);
}

Result<unsigned> effective_programs(const std::string& folder) {
  CORRAL_TRY(const Fd fd, open_group(folder));
  __u32 count = 0;
  if (bpf_prog_query(fd.get(), BPF_CGROUP_DEVICE, BPF_F_QUERY_EFFECTIVE, nullptr, nullptr,
                     &count) != 0)
    return fail_sys("BPF_PROG_QUERY on " + folder, errno);
  return count;
}

Result<Fd> load_program(std::span<const Node> nodes) {
  const std::vector<bpf_insn> code = device_program(nodes);
  // libbpf would raise our RLIMIT_MEMLOCK on kernels before 5.11, and the job would inherit that.
  libbpf_set_memlock_rlim(0);
  LIBBPF_OPTS(bpf_prog_load_opts, options);
  Fd program(bpf_prog_load(BPF_PROG_TYPE_CGROUP_DEVICE, "corral_devices", "Apache-2.0", code.data(),
                           code.size(), &options));
  if (!program) return fail_sys("load a BPF device program", errno);
  return program;
}

std::string parent_of(const std::string& folder) { return folder.substr(0, folder.rfind('/')); }

}  // namespace

std::vector<bpf_insn> device_program(std::span<const Node> nodes) {
  constexpr int kTypeMask = 0xffff;  // the upper half of access_type is the access
  std::vector<bpf_insn> code = {
      load_word(BPF_REG_2, BPF_REG_1, offsetof(bpf_cgroup_dev_ctx, access_type)),
      and_value(BPF_REG_2, kTypeMask),
      load_word(BPF_REG_3, BPF_REG_1, offsetof(bpf_cgroup_dev_ctx, major)),
      load_word(BPF_REG_4, BPF_REG_1, offsetof(bpf_cgroup_dev_ctx, minor)),
  };
  for (const Node& node : nodes) {
    if (node.type == Node::Type::file || node.major == 0) continue;
    const unsigned type = node.type == Node::Type::block ? BPF_DEVCG_DEV_BLOCK : BPF_DEVCG_DEV_CHAR;
    code.push_back(skip_unless_equal(BPF_REG_2, type, 4));
    code.push_back(skip_unless_equal(BPF_REG_3, node.major, 3));
    code.push_back(skip_unless_equal(BPF_REG_4, node.minor, 2));
    code.push_back(move_value(BPF_REG_0, 0));
    code.push_back(leave());
  }
  code.push_back(move_value(BPF_REG_0, 1));
  code.push_back(leave());
  return code;
}

Result<std::vector<DevicePrograms>> query_device_programs(const std::string& mount_point,
                                                          const std::string& folder) {
  std::vector<std::string> folders;
  for (std::string at = folder; at.size() >= mount_point.size(); at = parent_of(at)) {
    folders.insert(folders.begin(), at);
    if (at == mount_point) break;
  }
  std::vector<DevicePrograms> found;
  for (const std::string& at : folders) {
    CORRAL_TRY(const Fd fd, open_group(at));
    DevicePrograms programs{.folder = at};
    if (bpf_prog_query(fd.get(), BPF_CGROUP_DEVICE, 0, &programs.attach_flags, nullptr,
                       &programs.count) != 0)
      return fail_sys("BPF_PROG_QUERY on " + at, errno,
                      errno == EINVAL ? "the kernel lacks CONFIG_CGROUP_BPF" : "");
    if (programs.count > 0) found.push_back(programs);
  }
  return found;
}

Result<void> attach_device_program(const std::string& group, std::span<const Node> nodes) {
  CORRAL_TRY(const unsigned before, effective_programs(group));
  CORRAL_TRY(const Fd program, load_program(nodes));
  CORRAL_TRY(const Fd fd, open_group(group));
  if (bpf_prog_attach(program.get(), fd.get(), BPF_CGROUP_DEVICE, BPF_F_ALLOW_MULTI) != 0)
    return fail_sys("attach a BPF device program to " + group, errno,
                    errno == EPERM ? "a program above it may forbid further ones" : "");
  CORRAL_TRY(const unsigned after, effective_programs(group));
  if (after != before + 1) {
    bpf_prog_detach2(program.get(), fd.get(), BPF_CGROUP_DEVICE);
    return fail("attach a BPF device program to " + group + ": it would switch off one of the " +
                    std::to_string(before) + " above it",
                "use --enforce landlock");
  }
  return {};
}

}  // namespace corral::isolate

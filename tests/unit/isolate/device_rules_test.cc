// SPDX-License-Identifier: Apache-2.0
// Device rules by number: the BPF program, read by a small evaluator, and what the kernel makes of
// it and of v1's list.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "in_child.h"
#include "isolate/cgroup1.h"
#include "isolate/cgroup2.h"
#include "isolate/cgroup_folder.h"
#include "isolate/facts.h"
#include "isolate/plan.h"
#include "must_work.h"

namespace corral::isolate {
namespace {

Node node(Node::Type type, unsigned major, unsigned minor) {
  return {.path = "/dev/x", .type = type, .major = major, .minor = minor};
}

// Answers of the program for one access; the subset of eBPF that it is made of.
int evaluate(const std::vector<bpf_insn>& program, unsigned type, unsigned access, unsigned major,
             unsigned minor) {
  const bpf_cgroup_dev_ctx context{
      .access_type = access << 16 | type, .major = major, .minor = minor};
  std::int64_t registers[11]{};
  for (std::size_t at = 0; at < program.size(); ++at) {
    const bpf_insn& step = program[at];
    switch (step.code) {
      case BPF_LDX | BPF_MEM | BPF_W: {
        std::uint32_t word = 0;
        std::memcpy(&word, reinterpret_cast<const char*>(&context) + step.off, sizeof word);
        registers[step.dst_reg] = word;
        break;
      }
      case BPF_ALU64 | BPF_AND | BPF_K:
        registers[step.dst_reg] &= step.imm;
        break;
      case BPF_ALU64 | BPF_MOV | BPF_K:
        registers[step.dst_reg] = step.imm;
        break;
      case BPF_JMP | BPF_JNE | BPF_K:
        if (registers[step.dst_reg] != step.imm) at += static_cast<std::size_t>(step.off);
        break;
      case BPF_JMP | BPF_EXIT:
        return static_cast<int>(registers[0]);
      default:
        ADD_FAILURE() << "instruction " << int{step.code};
        return -1;
    }
  }
  ADD_FAILURE() << "ran over the end";
  return -1;
}

TEST(device_program, refuses_type_and_number_in_every_access) {
  const std::vector<Node> nodes = {node(Node::Type::character, 195, 0),
                                   node(Node::Type::block, 8, 16),
                                   node(Node::Type::missing, 195, 3)};
  const std::vector<bpf_insn> program = device_program(nodes);
  for (const unsigned access : {1U, 2U, 4U, 6U, 7U, 0U}) {
    EXPECT_EQ(evaluate(program, BPF_DEVCG_DEV_CHAR, access, 195, 0), 0) << access;
    EXPECT_EQ(evaluate(program, BPF_DEVCG_DEV_CHAR, access, 195, 3), 0) << access;
    EXPECT_EQ(evaluate(program, BPF_DEVCG_DEV_BLOCK, access, 8, 16), 0) << access;
    EXPECT_EQ(evaluate(program, BPF_DEVCG_DEV_CHAR, access, 195, 1), 1) << access;
    EXPECT_EQ(evaluate(program, BPF_DEVCG_DEV_CHAR, access, 195, 255), 1) << access;
    EXPECT_EQ(evaluate(program, BPF_DEVCG_DEV_CHAR, access, 8, 16), 1) << access;
    EXPECT_EQ(evaluate(program, BPF_DEVCG_DEV_BLOCK, access, 195, 0), 1) << access;
    EXPECT_EQ(evaluate(program, BPF_DEVCG_DEV_CHAR, access, 0, 0), 1) << access;
  }
}

TEST(device_program, passes_over_what_is_no_device) {
  const std::vector<Node> nodes = {node(Node::Type::file, 0, 0), node(Node::Type::missing, 0, 0)};
  EXPECT_EQ(device_program(nodes).size(), device_program({}).size());
}

TEST(device_list, v1_takes_one_line_a_node) {
  EXPECT_EQ(deny_line(node(Node::Type::character, 195, 0)), "c 195:0 rwm");
  EXPECT_EQ(deny_line(node(Node::Type::missing, 195, 2)), "c 195:2 rwm");
  EXPECT_EQ(deny_line(node(Node::Type::block, 8, 16)), "b 8:16 rwm");
  EXPECT_EQ(deny_line(node(Node::Type::file, 0, 0)), "");
}

Host live_host() {
  Request request;
  request.refuse_paths = {"/dev/full"};
  return read_host_facts(request).value_or(Host{});
}

const Node kFull = node(Node::Type::character, 1, 7);

// 0: refused in the group as it should be.
int try_inside(const CgroupFolder& group) {
  return in_child([&] {
    if (!group.join()) return 10;
    if (::open("/dev/full", O_RDONLY) >= 0 || errno != EPERM) return 1;
    if (::open("/dev/full", O_ACCMODE) >= 0 || errno != EPERM) return 2;
    if (::open("/dev/zero", O_RDWR) < 0) return 3;
    return 0;
  });
}

TEST(device_program, holds_in_the_kernel_below_another_one) {
  const Host host = live_host();
  CORRAL_NEEDS("cgroup2", host.cgroup2_trouble.empty() && host.cgroup2, host.cgroup2_trouble);
  const auto outer = CgroupFolder::create(host.cgroup2->folder);
  ASSERT_TRUE(outer) << outer.error().what;
  const Node zero = node(Node::Type::block, 1, 5);
  const auto attached = attach_device_program(outer->path(), std::span(&zero, 1));
  ASSERT_TRUE(attached) << attached.error().what;
  const auto programs = query_device_programs(host.cgroup2->mount_point, outer->path());
  ASSERT_TRUE(programs) << programs.error().what;
  ASSERT_FALSE(programs->empty());
  EXPECT_EQ(programs->back().folder, outer->path());
  EXPECT_EQ(programs->back().count, 1U);
  EXPECT_EQ(programs->back().attach_flags, std::uint32_t{BPF_F_ALLOW_MULTI});

  const auto inner = CgroupFolder::create(outer->path());
  ASSERT_TRUE(inner) << inner.error().what;
  ASSERT_TRUE(attach_device_program(inner->path(), std::span(&kFull, 1)));
  EXPECT_EQ(try_inside(*inner), 0);
}

TEST(device_list, holds_in_the_kernel) {
  const Host host = live_host();
  CORRAL_NEEDS("cgroup1", host.cgroup1_devices && host.cap_sys_admin, "no v1 devices controller");
  const auto group = CgroupFolder::create(host.cgroup1_devices->folder);
  ASSERT_TRUE(group) << group.error().what;
  const auto denied = deny_devices(group->path(), std::span(&kFull, 1));
  ASSERT_TRUE(denied) << denied.error().what;
  EXPECT_EQ(try_inside(*group), 0);
}

}  // namespace
}  // namespace corral::isolate

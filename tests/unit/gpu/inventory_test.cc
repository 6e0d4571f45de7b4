// SPDX-License-Identifier: Apache-2.0
// The inventory from NVML, from /proc, from both, and from neither.
#include "gpu/inventory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <tuple>

#include "../host/fixture_host.h"
#include "fake_nvml.h"
#include "gpu/machine.h"
#include "gpu/selector.h"

namespace corral::gpu {
namespace {

using tests::FakeNvml;
using tests::fixture_host;

constexpr const char* kFirstUuid = "GPU-2a4d0660-db8e-67f0-3142-37ccd2d5b25c";
constexpr const char* kSecondUuid = "GPU-2b685718-e7c6-a661-f4b0-04f71feb86c0";

void expect_two_gpus(const Inventory& inventory, const host::Root& root) {
  ASSERT_EQ(inventory.gpus.size(), 2U);
  const Gpu& first = inventory.gpus[0];
  EXPECT_EQ(first.index, 0U);
  EXPECT_EQ(first.pci.text(), "0000:00:06.0");
  EXPECT_EQ(first.uuid, kFirstUuid);
  EXPECT_EQ(first.minor, 1U);
  EXPECT_EQ(first.node, root.path("/dev/nvidia1")) << "by minor, never by index";
  EXPECT_EQ(first.numa_node, std::nullopt);
  EXPECT_TRUE(first.drm_nodes.empty());
  const Gpu& second = inventory.gpus[1];
  EXPECT_EQ(second.index, 1U);
  EXPECT_EQ(second.uuid, kSecondUuid);
  EXPECT_EQ(second.node, root.path("/dev/nvidia0"));
  EXPECT_EQ(second.numa_node, 1);
  EXPECT_EQ(second.drm_nodes, (std::vector<std::string>{root.path("/dev/dri/card1"),
                                                        root.path("/dev/dri/renderD128")}));
  EXPECT_EQ(second.name, "NVIDIA H200");
  EXPECT_EQ(second.trouble, "");
  EXPECT_EQ(inventory.driver_version, "580.159.04");
  EXPECT_TRUE(inventory.hidden.empty());
}

TEST(inventory, from_proc_alone) {
  const host::Root root = fixture_host("fake-two-gpus");
  const Inventory inventory = read_inventory(root, nullptr);
  EXPECT_EQ(inventory.source, Inventory::Source::proc);
  expect_two_gpus(inventory, root);
  EXPECT_EQ(inventory.gpus[0].memory_total_bytes, std::nullopt);
  EXPECT_EQ(inventory.gpus[0].accessible, std::nullopt) << "reading does not open nodes";
}

TEST(inventory, from_nvml_and_proc) {
  FakeNvml fake;
  fake.gpus = tests::two_gpus();
  const host::Root root = fixture_host("fake-two-gpus");
  const Inventory inventory = read_inventory(root, fake.open().get());
  EXPECT_EQ(inventory.source, Inventory::Source::nvml);
  expect_two_gpus(inventory, root);
  EXPECT_EQ(inventory.gpus[0].memory_total_bytes, fake.gpus[0].total);
  EXPECT_EQ(inventory.gpus[0].mig_enabled, false);
  EXPECT_TRUE(inventory.notes.empty());
}

TEST(inventory, from_nvml_alone) {
  FakeNvml fake;
  fake.gpus = tests::two_gpus();
  const tests::MadeHost host;
  const Inventory inventory = read_inventory(host.root(), fake.open().get());
  ASSERT_EQ(inventory.gpus.size(), 2U);
  EXPECT_EQ(inventory.gpus[0].node, host.root().path("/dev/nvidia1"));
  ASSERT_FALSE(inventory.notes.empty());
  EXPECT_NE(inventory.notes[0].find("DRM nodes of 0000:00:06.0 unknown"), std::string::npos)
      << "a node that is not known is not refused either: it must be said";
}

TEST(inventory, with_neither_is_empty_and_says_so) {
  const tests::MadeHost host;
  const Inventory inventory = read_inventory(host.root(), nullptr);
  EXPECT_EQ(inventory.source, Inventory::Source::none);
  EXPECT_TRUE(inventory.gpus.empty());
  ASSERT_EQ(inventory.notes.size(), 1U);
  EXPECT_TRUE(inventory.notes[0].starts_with("no NVIDIA driver found: ")) << inventory.notes[0];
}

TEST(inventory, is_in_bus_order_whatever_nvml_does) {
  FakeNvml fake;
  fake.gpus = tests::two_gpus();
  std::swap(fake.gpus[0], fake.gpus[1]);
  const host::Root root = fixture_host("fake-two-gpus");
  expect_two_gpus(read_inventory(root, fake.open().get()), root);
}

TEST(inventory, a_gpu_without_handle_keeps_its_number) {
  for (const auto& [code, trouble] :
       {std::pair{4, "no permission"}, std::pair{15, "GPU is lost"}, std::pair{13, "no handle"}}) {
    FakeNvml fake;
    fake.gpus = tests::two_gpus();
    fake.failures["nvmlDeviceGetHandleByIndex_v2#0"] = code;
    fake.failures["nvmlDeviceGetHandleByIndex#0"] = code;
    const host::Root root = fixture_host("fake-two-gpus");
    const Inventory inventory = read_inventory(root, fake.open().get());
    ASSERT_EQ(inventory.gpus.size(), 2U);
    EXPECT_EQ(inventory.gpus[0].uuid, kFirstUuid);
    EXPECT_EQ(inventory.gpus[0].trouble, trouble);
    EXPECT_EQ(inventory.gpus[0].node, root.path("/dev/nvidia1"));
    EXPECT_EQ(inventory.gpus[1].trouble, "");
  }
}

TEST(inventory, a_gpu_that_nobody_can_place_keeps_its_number_too) {
  FakeNvml fake;
  fake.gpus = tests::two_gpus();
  fake.failures["nvmlDeviceGetHandleByIndex_v2#0"] = 4;
  const tests::MadeHost host;
  const Inventory inventory = read_inventory(host.root(), fake.open().get());
  ASSERT_EQ(inventory.gpus.size(), 2U);
  EXPECT_EQ(inventory.gpus[0].trouble, "no permission");
  EXPECT_EQ(inventory.gpus[0].node, "");
  EXPECT_EQ(inventory.gpus[1].index, 1U);
  EXPECT_EQ(inventory.gpus[1].uuid, kSecondUuid);
}

TEST(inventory, a_gpu_that_nvml_hides_has_no_number) {
  FakeNvml fake;
  fake.gpus = tests::two_gpus();
  std::swap(fake.gpus[0], fake.gpus[1]);
  fake.shown = 1;
  const Inventory inventory = read_inventory(fixture_host("fake-two-gpus"), fake.open().get());
  ASSERT_EQ(inventory.gpus.size(), 1U);
  EXPECT_EQ(inventory.gpus[0].uuid, kSecondUuid);
  EXPECT_EQ(inventory.gpus[0].index, 0U) << "as nvidia-smi numbers it here";
  ASSERT_EQ(inventory.hidden.size(), 1U);
  EXPECT_EQ(inventory.hidden[0].uuid, kFirstUuid);
  EXPECT_EQ(inventory.hidden[0].trouble, "not shown by NVML");
}

TEST(inventory, any_call_may_fail_in_any_way_and_no_gpu_is_lost) {
  const host::Root root = fixture_host("fake-two-gpus");
  for (const std::string& symbol : FakeNvml::symbols()) {
    if (symbol.starts_with("nvmlInit")) continue;
    for (const int code : {2, 3, 4, 7, 13, 15, 999}) {
      for (const char* suffix : {"", "#0", "#1"}) {
        FakeNvml fake;
        fake.gpus = tests::two_gpus();
        fake.gpus[0].mig = true;
        fake.gpus[0].instances = {{"MIG-a", 1, 0}};
        fake.failures[symbol + suffix] = code;
        const auto nvml = fake.open();
        const Inventory inventory = read_inventory(root, nvml.get());
        ASSERT_EQ(inventory.gpus.size(), 2U) << symbol << suffix << " " << code;
        EXPECT_EQ(inventory.gpus[0].uuid, kFirstUuid) << symbol << suffix << " " << code;
        EXPECT_EQ(inventory.gpus[1].uuid, kSecondUuid) << symbol << suffix << " " << code;
        EXPECT_EQ(inventory.gpus[0].minor, 1U) << symbol << suffix << " " << code;
      }
    }
  }
}

TEST(inventory, any_symbol_may_be_missing) {
  const host::Root root = fixture_host("fake-two-gpus");
  for (const std::string& symbol : FakeNvml::symbols()) {
    FakeNvml fake;
    fake.gpus = tests::two_gpus();
    fake.missing = {symbol};
    const auto nvml = fake.open();
    ASSERT_TRUE(nvml) << symbol;
    expect_two_gpus(read_inventory(root, nvml.get()), root);
  }
}

TEST(inventory, mig_instances_have_their_capability_nodes) {
  FakeNvml fake;
  fake.gpus.resize(1);
  fake.gpus[0].bus = 0x4e;
  fake.gpus[0].uuid = "GPU-5f1c8a10-1111-2222-3333-444455556666";
  fake.gpus[0].minor = 3;
  fake.gpus[0].mig = true;
  fake.gpus[0].instances = {{"MIG-6f1a0000-0000-0000-0000-000000000001", 2, 0}};
  const host::Root root = fixture_host("fake-mig");
  const Inventory inventory = read_inventory(root, fake.open().get());
  ASSERT_EQ(inventory.gpus.size(), 1U);
  EXPECT_EQ(inventory.gpus[0].mig_enabled, true);
  ASSERT_EQ(inventory.gpus[0].mig.size(), 1U) << "the instances that NVML shows";
  EXPECT_EQ(inventory.gpus[0].mig[0], (MigInstance{"MIG-6f1a0000-0000-0000-0000-000000000001",
                                                   2,
                                                   0,
                                                   "1g.18gb",
                                                   std::uint64_t{16} << 30,
                                                   {root.path("/dev/nvidia-caps/nvidia-cap39"),
                                                    root.path("/dev/nvidia-caps/nvidia-cap40")}}));
}

TEST(inventory, mig_instances_from_proc_alone_have_no_uuid) {
  const Inventory inventory = read_inventory(fixture_host("fake-mig"), nullptr);
  ASSERT_EQ(inventory.gpus[0].mig.size(), 2U);
  EXPECT_EQ(inventory.gpus[0].mig_enabled, true);
  EXPECT_EQ(inventory.gpus[0].mig[0].gpu_instance_id, 1U);
  EXPECT_EQ(inventory.gpus[0].mig[0].uuid, "");
}

TEST(inventory, broken_files_keep_their_gpus_and_are_named) {
  const Inventory inventory = read_inventory(fixture_host("fake-trouble"), nullptr);
  ASSERT_EQ(inventory.gpus.size(), 3U);
  EXPECT_EQ(inventory.gpus[0].uuid, "");
  EXPECT_EQ(inventory.gpus[1].node, "") << "its minor is cut off, and 0 would be another GPU";
  EXPECT_EQ(inventory.gpus[2].pci.text(), "0000:04:00.0");
  ASSERT_EQ(inventory.hidden.size(), 1U);
  EXPECT_EQ(inventory.hidden[0].trouble, "excluded by the driver");
  EXPECT_NE(inventory.notes[0].find("0000:04:00.0/information: Is a directory"), std::string::npos);
}

TEST(inventory, nvml_that_cannot_count_leaves_it_to_proc) {
  FakeNvml fake;
  fake.gpus = tests::two_gpus();
  fake.failures["nvmlDeviceGetCount_v2"] = 999;
  const host::Root root = fixture_host("fake-two-gpus");
  const Inventory inventory = read_inventory(root, fake.open().get());
  EXPECT_EQ(inventory.source, Inventory::Source::proc);
  expect_two_gpus(inventory, root);
  EXPECT_EQ(inventory.notes.at(0), "NVML: nvmlDeviceGetCount: unknown error");
}

// A pipe without a writer: opening it is seen at the other end.
TEST(inventory, access_is_asked_for_without_opening_where_that_is_enough) {
  if (::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 0)
    GTEST_SKIP() << "under no_new_privs nodes are opened";
  const tests::MadeHost host;
  const std::string node = host.root().path("/nvidia0");
  ASSERT_EQ(::mkfifo(node.c_str(), 0600), 0);
  const int events = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  ASSERT_GE(::inotify_add_watch(events, node.c_str(), IN_OPEN), 0);
  Inventory inventory;
  inventory.gpus.resize(1);
  inventory.gpus[0].node = node;
  probe_access(inventory);
  EXPECT_EQ(inventory.gpus[0].accessible, true);
  char event[512];
  EXPECT_LT(::read(events, event, sizeof event), 0) << "a sleeping GPU would start";
  ::close(events);
}

TEST(inventory, the_null_device_over_a_node_is_no_gpu) {
  Inventory inventory;
  inventory.gpus.resize(1);
  inventory.gpus[0].node = "/dev/null";
  probe_access(inventory);
  EXPECT_EQ(inventory.gpus[0].accessible, false);
}

TEST(inventory, access_is_what_opening_the_node_says) {
  const tests::MadeHost host;
  host.write("/dev/nvidia0", "");
  host.write_unreadable("/dev/nvidia2");
  Inventory inventory;
  inventory.gpus.resize(4);
  inventory.gpus[0].node = host.root().path("/dev/nvidia0");
  inventory.gpus[1].node = host.root().path("/dev/nvidia1");
  inventory.gpus[2].node = host.root().path("/dev/nvidia2");
  const auto expect = [&] {
    probe_access(inventory);
    EXPECT_EQ(inventory.gpus[0].accessible, true);
    EXPECT_EQ(inventory.gpus[1].accessible, false) << "no node";
    EXPECT_EQ(inventory.gpus[2].accessible, true) << "refused by what is there, not by a rule";
    EXPECT_EQ(inventory.gpus[3].accessible, std::nullopt) << "no minor, not looked at";
  };
  expect();
  // Where a Landlock domain is possible nodes are opened; nothing takes no_new_privs off again.
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    expect();
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// The two ways to an inventory, with each combination of closed nodes.
TEST(inventory, proc_and_nvml_number_and_select_alike) {
  const host::Root root = fixture_host("fake-two-gpus");
  for (const std::set<unsigned>& closed :
       {std::set<unsigned>{}, {0}, {1}, {0, 1}}) {  // by place in PCI order
    FakeNvml fake;
    for (unsigned i = 0; i < 2; ++i)
      if (!closed.contains(i)) fake.gpus.push_back(tests::two_gpus()[i]);
    const Inventory nvml = read_inventory(root, fake.open().get());
    Inventory proc = read_inventory(root, nullptr);
    for (Gpu& gpu : proc.gpus) gpu.accessible = !closed.contains(gpu.index);
    hide_closed(proc);

    ASSERT_EQ(proc.source, Inventory::Source::proc);
    ASSERT_EQ(nvml.source, Inventory::Source::nvml);
    const auto facts = [](const std::vector<Gpu>& gpus) {
      std::vector<std::string> out;
      for (const Gpu& gpu : gpus)
        out.push_back(fmt::format("{} {} {} {} {}", gpu.index, gpu.uuid, gpu.pci.text(), gpu.node,
                                  fmt::join(gpu.drm_nodes, ",")));
      return out;
    };
    EXPECT_EQ(facts(proc.gpus), facts(nvml.gpus));
    EXPECT_EQ(facts(proc.hidden), facts(nvml.hidden));
    for (const Gpu& gpu : proc.hidden) EXPECT_FALSE(gpu.trouble.empty());
    for (const char* text :
         {"0", "1", "0,1", "0-1", "all", "none", "GPU-2a", "GPU-2b", "00:06.0", "00:07.0", "7"}) {
      const auto from_proc = select(text, proc);
      const auto from_nvml = select(text, nvml);
      ASSERT_EQ(from_proc.has_value(), from_nvml.has_value()) << text;
      if (!from_proc) {
        EXPECT_EQ(from_proc.error().what, from_nvml.error().what);
        continue;
      }
      EXPECT_EQ(*from_proc, *from_nvml) << text;
      EXPECT_EQ(*visible_devices(*from_proc, proc), *visible_devices(*from_nvml, nvml));
    }
  }
}

TEST(inventory, a_gpu_of_unknown_access_keeps_its_number) {
  Inventory inventory = read_inventory(fixture_host("fake-two-gpus"), nullptr);
  hide_closed(inventory);
  EXPECT_EQ(inventory.gpus.size(), 2U);
}

TEST(inventory, access_is_denied_where_the_mode_denies_it) {
  if (::geteuid() == 0 && ::setegid(65534) == 0 && ::seteuid(65534) != 0)
    GTEST_SKIP() << "cannot become an ordinary user";
  {
    const tests::MadeHost host;
    host.write("/dev/nvidia0", "");
    ::chmod(host.root().path("/dev/nvidia0").c_str(), 0);
    Inventory inventory;
    inventory.gpus.resize(1);
    inventory.gpus[0].node = host.root().path("/dev/nvidia0");
    probe_access(inventory);
    EXPECT_EQ(inventory.gpus[0].accessible, false);
  }
  if (::getuid() == 0) {
    ASSERT_EQ(::seteuid(0), 0);
    ASSERT_EQ(::setegid(0), 0);
  }
}

// A machine whose files a test may spoil.
class OpenMachine : public testing::Test {
 protected:
  OpenMachine() {
    std::filesystem::copy(fixture_host("fake-two-gpus").path("/"), host_.root().path("/"),
                          std::filesystem::copy_options::recursive);
    ::setenv("CORRAL_SIM", host_.root().prefix().c_str(), 1);
  }
  ~OpenMachine() override { ::unsetenv("CORRAL_SIM"); }

  static bool asked_nvml(const OpenedMachine& machine) {
    return machine.nvml_open || std::ranges::any_of(machine.inventory.notes, [](const auto& note) {
             return note.starts_with("NVML: ");
           });
  }

  tests::MadeHost host_;
};

TEST_F(OpenMachine, leaves_nvml_for_later_where_proc_tells_all) {
  const OpenedMachine machine = open_machine();
  EXPECT_FALSE(asked_nvml(machine));
  EXPECT_TRUE(machine.nvml) << "for whoever wants readings";
  EXPECT_TRUE(machine.inventory.simulated);
  EXPECT_EQ(machine.inventory.gpus.size(), 2U);
  EXPECT_EQ(machine.inventory.gpus[0].accessible, true);
}

TEST_F(OpenMachine, asks_nvml_where_proc_does_not_tell_all) {
  const std::string gpus = host_.root().path("/proc/driver/nvidia/gpus");
  const std::string information = gpus + "/0000:00:07.0/information";
  std::ifstream file(information);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto replaced = [&](std::string_view from, std::string_view to) {
    std::string out = text;
    const auto at = out.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return out.replace(at, from.size(), to);
  };
  const auto expect_asked = [&](const char* why) {
    EXPECT_TRUE(asked_nvml(open_machine())) << why;
  };

  for (const auto& [from, to, why] :
       {std::tuple{"GPU-2b685718", "GPU-????????", "a GPU that was never started"},
        std::tuple{"Model:", "Mode1:", "no name"},
        std::tuple{"Device Minor:", "Device Miner:", "no node"}}) {
    std::ofstream(information) << replaced(from, to);
    expect_asked(why);
  }
  std::ofstream(information) << text;
  EXPECT_FALSE(asked_nvml(open_machine())) << "whole again";

  std::filesystem::remove(host_.root().path("/dev/nvidia0"));
  expect_asked("NVML makes missing nodes");
  host_.write("/dev/nvidia0", "");

  host_.write("/proc/driver/nvidia/capabilities/gpu0/mig/gi1/access", "DeviceFileMinor: 30\n");
  host_.write("/proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access", "DeviceFileMinor: 31\n");
  expect_asked("UUIDs of MIG instances");
  std::filesystem::remove_all(host_.root().path("/proc/driver/nvidia/capabilities"));

  std::filesystem::remove(information);
  expect_asked("unreadable");
  std::filesystem::remove_all(gpus);
  std::filesystem::create_directories(gpus);
  expect_asked("a folder without GPUs may be a mask of one");
  std::filesystem::remove_all(gpus);
  expect_asked("no folder");
}

TEST(machine, is_the_simulated_one_where_the_variable_names_it) {
  ::unsetenv("CORRAL_SIM");
  EXPECT_FALSE(find_machine().simulated);
  EXPECT_EQ(find_machine().hardware.path("/dev/nvidia0"), "/dev/nvidia0");
  ::setenv("CORRAL_SIM", "", 1);
  EXPECT_FALSE(find_machine().simulated);
  ::setenv("CORRAL_SIM", "/tmp/machine//", 1);
  EXPECT_TRUE(find_machine().simulated);
  EXPECT_EQ(find_machine().hardware.path("/dev/nvidia0"), "/tmp/machine/dev/nvidia0");
  ::unsetenv("CORRAL_SIM");
}

}  // namespace
}  // namespace corral::gpu

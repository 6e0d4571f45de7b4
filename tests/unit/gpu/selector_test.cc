// SPDX-License-Identifier: Apache-2.0
// Every form of a selection, and every way to get it wrong.
#include "gpu/selector.h"

#include <gtest/gtest.h>

namespace corral::gpu {
namespace {

Gpu gpu(unsigned index, std::string uuid, std::uint8_t device) {
  Gpu out;
  out.index = index;
  out.uuid = std::move(uuid);
  out.pci.device = device;
  out.node = "/dev/nvidia" + std::to_string(index);
  return out;
}

Inventory two() {
  Inventory out;
  out.gpus = {gpu(0, "GPU-2a4d0660-db8e-67f0-3142-37ccd2d5b25c", 6),
              gpu(1, "GPU-2b685718-e7c6-a661-f4b0-04f71feb86c0", 7)};
  return out;
}

Inventory many(unsigned count) {
  Inventory out;
  for (unsigned i = 0; i < count; ++i)
    out.gpus.push_back(gpu(i, "GPU-000000" + std::to_string(10 + i), static_cast<std::uint8_t>(i)));
  return out;
}

Inventory with_mig() {
  Inventory out = two();
  out.gpus[1].mig = {{"MIG-6f1a0000-0000", 1, 0, "1g.18gb", {}, {}},
                     {"MIG-6f2b0000-0000", 2, 0, "1g.18gb", {}, {}},
                     {"", 3, 0, "", {}, {}}};
  return out;
}

std::vector<unsigned> gpus(std::string_view text, const Inventory& inventory) {
  const auto selection = select(text, inventory);
  EXPECT_TRUE(selection) << text << ": " << selection.error().what;
  return selection ? selection->gpus : std::vector<unsigned>{~0U};
}

std::string error(std::string_view text, const Inventory& inventory) {
  const auto selection = select(text, inventory);
  EXPECT_FALSE(selection) << text;
  return selection ? "" : selection.error().what;
}

using List = std::vector<unsigned>;

TEST(selector, numbers_and_ranges) {
  EXPECT_EQ(gpus("1", two()), List{1});
  EXPECT_EQ(gpus("0,1", two()), (List{0, 1}));
  EXPECT_EQ(gpus("1,0", two()), (List{0, 1}));
  EXPECT_EQ(gpus("0-1", two()), (List{0, 1}));
  EXPECT_EQ(gpus("0,2-3", many(8)), (List{0, 2, 3}));
  EXPECT_EQ(gpus("5-5", many(8)), List{5});
  EXPECT_EQ(gpus(" 0 , 7 ", many(8)), (List{0, 7}));
  EXPECT_EQ(gpus("007", many(8)), List{7});
}

TEST(selector, uuid_prefixes_in_any_case) {
  EXPECT_EQ(gpus("GPU-2b68", two()), List{1});
  EXPECT_EQ(gpus("gpu-2B68", two()), List{1});
  EXPECT_EQ(gpus("GPU-2b685718-e7c6-a661-f4b0-04f71feb86c0", two()), List{1});
  EXPECT_EQ(gpus("GPU-2a,1", two()), (List{0, 1}));
}

TEST(selector, pci_addresses) {
  for (const char* text : {"00:07.0", "0000:00:07.0", "00000000:00:07.0", "00:07"})
    EXPECT_EQ(gpus(text, two()), List{1}) << text;
}

TEST(selector, all_and_none) {
  EXPECT_EQ(gpus("all", two()), (List{0, 1}));
  EXPECT_EQ(gpus("ALL", two()), (List{0, 1}));
  EXPECT_TRUE(select("none", two())->empty());
  EXPECT_TRUE(select("none", Inventory{})->empty()) << "holds on a machine without any";
  EXPECT_EQ(error("all", Inventory{}), "'all' selects nothing: this machine has no GPU");
}

TEST(selector, a_mig_instance_gives_its_gpu_with_only_that_instance) {
  const auto one = select("MIG-6f1a", with_mig()).value();
  EXPECT_EQ(one, (Selection{{1}, {{1, 0}}}));
  const auto both = select("0,mig-6F2B,MIG-6f1a", with_mig()).value();
  EXPECT_EQ(both, (Selection{{0, 1}, {{1, 0}, {1, 1}}}));
  EXPECT_EQ(error("MIG-6f", with_mig()),
            "'MIG-6f' is the beginning of more than one MIG instance: MIG-6f1a0000-0000 (on GPU 1) "
            "and MIG-6f2b0000-0000 (on GPU 1)");
  EXPECT_EQ(error("MIG-7", with_mig()),
            "no MIG instance MIG-7: this machine has MIG-6f1a0000-0000 (on GPU 1) and "
            "MIG-6f2b0000-0000 (on GPU 1)");
  EXPECT_EQ(error("MIG-7", two()), "no MIG instance MIG-7: this machine has none");
  EXPECT_EQ(error("MIG-", with_mig()), "'MIG-' names no MIG instance");
}

TEST(selector, a_gpu_whole_and_in_part_is_an_error) {
  const char* kMessage = "GPU 1 is named whole and by its instance MIG-6f1a0000-0000";
  EXPECT_EQ(error("1,MIG-6f1a", with_mig()), kMessage);
  EXPECT_EQ(error("MIG-6f1a,1", with_mig()), kMessage);
}

TEST(selector, what_is_not_there_is_named_with_what_is) {
  EXPECT_EQ(error("7", two()), "no GPU 7: this machine has 0 and 1");
  EXPECT_EQ(error("0-7", two()), "no GPU 7: this machine has 0 and 1");
  EXPECT_EQ(error("8", many(8)), "no GPU 8: this machine has 0 to 7");
  EXPECT_EQ(error("1", many(1)), "no GPU 1: this machine has 0");
  EXPECT_EQ(error("0", Inventory{}), "no GPU 0: this machine has none");
  EXPECT_EQ(error("GPU-3", two()),
            "no GPU GPU-3: this machine has GPU-2a4d0660-db8e-67f0-3142-37ccd2d5b25c (GPU 0) and "
            "GPU-2b685718-e7c6-a661-f4b0-04f71feb86c0 (GPU 1)");
  EXPECT_EQ(error("00:08.0", two()),
            "no GPU at 0000:00:08.0: this machine has 0000:00:06.0 (GPU 0) and 0000:00:07.0 (GPU "
            "1)");
}

TEST(selector, huge_numbers_are_not_there_either) {
  for (const char* text :
       {"4294967296", "18446744073709551616", "0-4294967296", "99999999999999999999999999999999"})
    EXPECT_TRUE(error(text, two()).starts_with("no GPU ")) << text;
}

TEST(selector, the_same_gpu_twice_is_an_error) {
  EXPECT_EQ(error("1,1", two()), "GPU 1 is named twice, the second time by '1'");
  EXPECT_EQ(error("0-1,1", two()), "GPU 1 is named twice, the second time by '1'");
  EXPECT_EQ(error("1,GPU-2b", two()), "GPU 1 is named twice, the second time by 'GPU-2b'");
  EXPECT_EQ(error("00:07.0,1", two()), "GPU 1 is named twice, the second time by '1'");
  EXPECT_EQ(error("MIG-6f1a,MIG-6f1", with_mig()), "MIG-6f1a0000-0000 is named twice");
}

TEST(selector, an_ambiguous_prefix_lists_the_candidates) {
  EXPECT_EQ(error("GPU-2", two()),
            "'GPU-2' is the beginning of more than one UUID: "
            "GPU-2a4d0660-db8e-67f0-3142-37ccd2d5b25c (GPU 0) and "
            "GPU-2b685718-e7c6-a661-f4b0-04f71feb86c0 (GPU 1)");
}

TEST(selector, malformed_fields_are_named) {
  EXPECT_EQ(error("", two()), "the selection of GPUs is empty");
  EXPECT_EQ(error("  ", two()), "the selection of GPUs is empty");
  EXPECT_EQ(error(",", two()), "',' has an empty field");
  EXPECT_EQ(error("0,", two()), "'0,' has an empty field");
  EXPECT_EQ(error("0,,1", two()), "'0,,1' has an empty field");
  EXPECT_EQ(error("1-0", two()), "the range '1-0' runs backwards");
  EXPECT_EQ(select("1-0", two()).error().hint, "write 0-1");
  EXPECT_EQ(error("GPU-", two()), "'GPU-' is no UUID: hex digits are expected after 'GPU-'");
  EXPECT_EQ(error("GPU-xyz", two()), "'GPU-xyz' is no UUID: hex digits are expected after 'GPU-'");
  EXPECT_EQ(error("00:zz.0", two()), "'00:zz.0' is no PCI address");
  for (const char* text : {"-1", "1-", "-", "0x1", "1.0", "+1", "1 0", "cuda:", "2b68", "0--1",
                           "0-1-2", "gpu1", "one"})
    EXPECT_FALSE(select(text, two())) << text;
  EXPECT_EQ(error("gpu1", two()), "'gpu1' is no GPU number and no range of them");
}

TEST(selector, all_and_none_stand_alone) {
  EXPECT_EQ(error("all,1", two()), "'all' stands alone, not in a list");
  EXPECT_EQ(error("0,none", two()), "'none' stands alone, not in a list");
}

TEST(selector, choosing_forms_are_named_as_not_there_yet) {
  EXPECT_EQ(error("any:2", two()), "'any:2' is not available yet");
  EXPECT_EQ(error("linked:2", two()), "'linked:2' is not available yet");
}

TEST(selector, errors_are_safe_for_a_terminal) {
  EXPECT_EQ(error("\033[2J", two()), "'\\x1b[2J' is no GPU number and no range of them");
}

TEST(selector, gpus_that_are_closed_to_us_cannot_be_selected) {
  Inventory inventory = many(3);
  inventory.gpus[0].accessible = false;
  inventory.gpus[1].accessible = true;
  EXPECT_EQ(gpus("all", inventory), (List{1, 2}));
  EXPECT_EQ(error("0", inventory),
            "GPU 0 is closed to this process: /dev/nvidia0 cannot be opened");
  EXPECT_EQ(select("0", inventory).error().hint, "open to it: GPU 1 and 2");
  inventory.gpus[1].accessible = inventory.gpus[2].accessible = false;
  EXPECT_EQ(error("all", inventory), "'all' selects nothing: no GPU is open to this process");
}

TEST(selector, a_hidden_gpu_is_explained) {
  Inventory inventory = many(1);
  inventory.hidden = {two().gpus[1]};
  inventory.hidden[0].trouble = "not shown by NVML";
  EXPECT_EQ(error("1", inventory), "no GPU 1: this machine has 0");
  for (const char* text : {"1", "GPU-2b68", "00:07.0"})
    EXPECT_EQ(select(text, inventory).error().hint,
              "without a number here, because it is closed to this process: "
              "GPU-2b685718-e7c6-a661-f4b0-04f71feb86c0 at 0000:00:07.0 (not shown by NVML)")
        << text;
}

TEST(selector, unknown_uuids_match_no_prefix) {
  Inventory inventory = two();
  inventory.gpus[1].uuid.clear();
  EXPECT_EQ(error("GPU-3", inventory),
            "no GPU GPU-3: this machine has GPU-2a4d0660-db8e-67f0-3142-37ccd2d5b25c (GPU 0) and "
            "one of unknown UUID (GPU 1)");
}

TEST(visible_devices, are_uuids) {
  EXPECT_EQ(visible_devices({{0, 1}, {}}, two()).value(),
            "GPU-2a4d0660-db8e-67f0-3142-37ccd2d5b25c,GPU-2b685718-e7c6-a661-f4b0-04f71feb86c0");
  EXPECT_EQ(visible_devices({{1}, {{1, 0}, {1, 1}}}, with_mig()).value(),
            "MIG-6f1a0000-0000,MIG-6f2b0000-0000");
}

TEST(visible_devices, none_is_a_value_that_the_driver_takes_for_no_gpu) {
  EXPECT_EQ(visible_devices({}, two()).value(), "NoDevFiles");
}

TEST(visible_devices, an_unknown_uuid_is_an_error_and_no_number) {
  Inventory inventory = two();
  inventory.gpus[1].uuid.clear();
  EXPECT_EQ(visible_devices({{1}, {}}, inventory).error().what, "the UUID of GPU 1 is unknown");
}

}  // namespace
}  // namespace corral::gpu

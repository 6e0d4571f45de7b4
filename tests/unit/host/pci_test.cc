// SPDX-License-Identifier: Apache-2.0
// PCI addresses and what /sys says of them.
#include "host/pci.h"

#include <gtest/gtest.h>

#include "fixture_host.h"

namespace corral::host {
namespace {

const PciAddress kFirst{0, 0, 6, 0};
const PciAddress kSecond{0, 0, 7, 0};

TEST(pci_address, reads_every_form_that_people_paste) {
  for (const char* text : {"0000:00:07.0", "00000000:00:07.0", "00:07.0", "00:07", "0:0:7.0"})
    EXPECT_EQ(PciAddress::parse(text).value(), kSecond) << text;
  EXPECT_EQ(PciAddress::parse("10DE:AB:1F.7").value(), (PciAddress{0x10de, 0xab, 0x1f, 7}));
}

TEST(pci_address, refuses_what_is_none) {
  for (const char* text :
       {"",         ":",       "7",        "00:07.8",  "00:20.0", "100:07.0",          "00:07.",
        "00:07.00", ".0",      "00:.0",    ":07.0",    "0:0:0:0", "000000000:00:07.0", "0x0:7.0",
        "-1:07.0",  "+1:07.0", " 00:07.0", "00:07.0 ", "gg:07.0", "00:07.0.0",         "00:007.0"})
    EXPECT_FALSE(PciAddress::parse(text)) << text;
  EXPECT_EQ(PciAddress::parse("x\033[2J").error().what, "'x\\x1b[2J' is no PCI address");
}

TEST(pci_address, orders_by_domain_bus_device) {
  EXPECT_LT(PciAddress::parse("0000:ff:1f.7").value(), PciAddress::parse("0001:00:00.0").value());
  EXPECT_LT(kFirst, kSecond);
  EXPECT_EQ(kSecond.text(), "0000:00:07.0");
  EXPECT_EQ(PciAddress::parse("10000000:00:07.0").value().text(), "10000000:00:07.0");
}

TEST(pci, numa_node_is_unknown_when_the_firmware_names_none) {
  const Root root = tests::fixture_host("fake-two-gpus");
  EXPECT_EQ(numa_node(root, kFirst).value(), std::nullopt);
  EXPECT_EQ(numa_node(root, kSecond).value(), 1);
  EXPECT_FALSE(numa_node(root, PciAddress{0, 9, 9, 0}));
}

TEST(pci, drm_nodes_are_cards_and_render_nodes_only) {
  const Root root = tests::fixture_host("fake-two-gpus");
  EXPECT_EQ(
      drm_nodes(root, kSecond).value(),
      (std::vector<std::string>{root.path("/dev/dri/card1"), root.path("/dev/dri/renderD128")}));
  EXPECT_TRUE(drm_nodes(root, kFirst).value().empty());
}

TEST(pci, drm_nodes_of_an_unknown_function_are_an_error) {
  const Root root = tests::fixture_host("fake-two-gpus");
  EXPECT_FALSE(drm_nodes(root, PciAddress{0, 9, 9, 0}));
}

TEST(pci, link_has_speed_and_lanes) {
  const auto link = pci_link(tests::fixture_host("fake-two-gpus"), kFirst);
  EXPECT_EQ(link.value(), (PciLink{"32.0 GT/s PCIe", "32.0 GT/s PCIe", 16, 16}));
}

TEST(pci, a_broken_number_is_an_error) {
  const tests::MadeHost host;
  host.write("/sys/bus/pci/devices/0000:00:06.0/numa_node", "one\n");
  EXPECT_NE(numa_node(host.root(), kFirst).error().what.find("'one' is no number"),
            std::string::npos);
}

}  // namespace
}  // namespace corral::host

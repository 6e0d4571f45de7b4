// SPDX-License-Identifier: Apache-2.0
// /proc/driver/nvidia, whole and broken.
#include "host/driver_proc.h"

#include <gtest/gtest.h>

#include "fixture_host.h"

namespace corral::host {
namespace {

TEST(driver_proc, version_is_found_in_both_kinds_of_module) {
  EXPECT_EQ(parse_driver_version("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  "
                                 "580.159.04  Release Build  (root@)  \nGCC version:  12.2.0\n")
                .value(),
            "580.159.04");
  EXPECT_EQ(
      parse_driver_version("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82.01  Wed Oct "
                           "27 21:21:55 UTC 2021\n")
          .value(),
      "470.82.01");
}

TEST(driver_proc, version_is_never_the_compilers) {
  EXPECT_FALSE(parse_driver_version("GCC version:  gcc version 15.3.0 (GCC)\n"));
  EXPECT_FALSE(parse_driver_version("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  58"));
  EXPECT_FALSE(parse_driver_version(""));
}

TEST(driver_proc, gpus_come_in_bus_order_with_their_minors) {
  const auto read = read_driver_gpus(tests::fixture_host("fake-two-gpus")).value();
  EXPECT_TRUE(read.unread.empty());
  ASSERT_EQ(read.gpus.size(), 2U);
  EXPECT_EQ(
      read.gpus[0],
      (DriverGpu{
          {0, 0, 6, 0}, "NVIDIA H200", "GPU-2a4d0660-db8e-67f0-3142-37ccd2d5b25c", 1, false}));
  EXPECT_EQ(read.gpus[1].minor, 0U);
}

TEST(driver_proc, broken_information_keeps_the_gpu_and_leaves_the_rest_unknown) {
  const auto read = read_driver_gpus(tests::fixture_host("fake-trouble")).value();
  ASSERT_EQ(read.gpus.size(), 4U);
  const DriverGpu& never_started = read.gpus[0];
  EXPECT_EQ(never_started.uuid, "") << "question marks are no UUID";
  EXPECT_EQ(never_started.minor, 0U);
  const DriverGpu& half_written = read.gpus[1];
  EXPECT_EQ(half_written.name, "NVIDIA L4");
  EXPECT_EQ(half_written.uuid, "") << "a cut UUID would be a prefix of others";
  EXPECT_EQ(half_written.minor, std::nullopt);
  EXPECT_TRUE(read.gpus[2].excluded);
  const DriverGpu& unreadable = read.gpus[3];
  EXPECT_EQ(unreadable.pci.text(), "0000:04:00.0");
  EXPECT_EQ(unreadable.name, "");

  ASSERT_EQ(read.unread.size(), 2U);
  EXPECT_NE(read.unread[0].find("0000:04:00.0/information: Is a directory"), std::string::npos)
      << read.unread[0];
  EXPECT_NE(read.unread[1].find("not-an-address/information"), std::string::npos) << read.unread[1];
}

TEST(driver_proc, no_driver_is_an_error) {
  const tests::MadeHost host;
  EXPECT_FALSE(read_driver_gpus(host.root()));
  EXPECT_FALSE(read_driver_version(host.root()));
  EXPECT_FALSE(read_driver_params(host.root()));
  EXPECT_EQ(read_driver_version(host.root()).error().sys, ENOENT);
}

TEST(driver_proc, params_are_read_by_name) {
  const auto params = read_driver_params(tests::fixture_host("fake-two-gpus")).value();
  EXPECT_EQ(params.find("ModifyDeviceFiles")->second, "1");
  EXPECT_EQ(params.find("RmProfilingAdminOnly")->second, "0");
  EXPECT_EQ(params.find("RegistryDwords")->second, "\"\"");
  EXPECT_EQ(params.find("NotThere"), params.end());
}

TEST(driver_proc, mig_capabilities_name_the_nodes_of_both_instances) {
  const Root root = tests::fixture_host("fake-mig");
  const auto capabilities = read_mig_capabilities(root).value();
  ASSERT_EQ(capabilities.size(), 2U);
  EXPECT_EQ(capabilities[0], (MigCapability{3,
                                            1,
                                            0,
                                            {root.path("/dev/nvidia-caps/nvidia-cap30"),
                                             root.path("/dev/nvidia-caps/nvidia-cap31")}}));
  EXPECT_EQ(capabilities[1].gpu_instance_id, 2U);
}

TEST(driver_proc, no_capabilities_folder_means_none) {
  EXPECT_TRUE(read_mig_capabilities(tests::fixture_host("fake-two-gpus")).value().empty());
}

TEST(driver_proc, a_capability_without_its_minor_is_an_error) {
  const std::string ci = "/proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access";
  const tests::MadeHost host;
  host.write("/proc/driver/nvidia/capabilities/gpu0/mig/gi1/access", "DeviceFileMinor: 3\n");
  host.write(ci, "DeviceFileMode: 292\n");
  EXPECT_EQ(read_mig_capabilities(host.root()).error().what,
            host.root().path(ci) + ": no DeviceFileMinor in it");
  host.write(ci, "DeviceFileMinor: x\n");
  EXPECT_FALSE(read_mig_capabilities(host.root()));
}

}  // namespace
}  // namespace corral::host

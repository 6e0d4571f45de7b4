// SPDX-License-Identifier: Apache-2.0
// A PCI function's address. Its order is the PCI bus order, which is nvidia-smi's numbering of
// GPUs.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace corral::host {

struct PciAddress {
  std::uint32_t domain = 0;
  std::uint8_t bus = 0;
  std::uint8_t device = 0;
  std::uint8_t function = 0;

  auto operator<=>(const PciAddress&) const = default;

  // "0000:00:07.0", as the kernel writes it.
  std::string text() const;

  // The kernel's form, NVML's with an eight-digit domain ("00000000:00:07.0"), and without a domain
  // ("00:07.0": domain 0) or function ("00:07": function 0). Hex in either case.
  static Result<PciAddress> parse(std::string_view text);
};

}  // namespace corral::host

// SPDX-License-Identifier: Apache-2.0
// Reading and writing PCI addresses.
#include "host/pci_address.h"

#include <fmt/format.h>

#include <limits>

#include "base/text.h"

namespace corral::host {
namespace {

// 1 to `digits` hex digits, at most `limit`.
template <class Number>
std::optional<Number> hex_field(std::string_view text, std::size_t digits,
                                std::uint32_t limit = std::numeric_limits<Number>::max()) {
  if (text.size() > digits) return std::nullopt;
  const auto value = parse_number<std::uint32_t>(text, 16);
  if (!value || *value > limit) return std::nullopt;
  return static_cast<Number>(*value);
}

}  // namespace

std::string PciAddress::text() const {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", domain, bus, device, function);
}

Result<PciAddress> PciAddress::parse(std::string_view text) {
  const auto malformed = [&] {
    return fail("'" + printable(text) + "' is no PCI address",
                "write it as 0000:00:07.0, without the domain as 00:07.0");
  };
  const auto parts = split(text, ':');
  if (parts.size() != 2 && parts.size() != 3) return malformed();

  std::string_view slot = parts.back();
  std::optional<std::uint8_t> function = 0;
  if (const auto dot = slot.find('.'); dot != std::string_view::npos) {
    function = hex_field<std::uint8_t>(slot.substr(dot + 1), 1, 7);
    slot = slot.substr(0, dot);
  }
  const auto device = hex_field<std::uint8_t>(slot, 2, 31);
  const auto bus = hex_field<std::uint8_t>(parts[parts.size() - 2], 2);
  std::optional<std::uint32_t> domain = 0;
  if (parts.size() == 3) domain = hex_field<std::uint32_t>(parts[0], 8);
  if (!domain || !bus || !device || !function) return malformed();
  return PciAddress{*domain, *bus, *device, *function};
}

}  // namespace corral::host

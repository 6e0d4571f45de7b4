// SPDX-License-Identifier: Apache-2.0
// Reading PCI functions from /sys/bus/pci/devices.
#include "host/pci.h"

#include <cerrno>

#include "base/file.h"
#include "base/text.h"

namespace corral::host {
namespace {

template <class Number>
Result<Number> read_number(const std::string& path) {
  CORRAL_TRY(const std::string text, read_file(path));
  const auto value = parse_number<Number>(trim(text));
  if (!value) return fail(path + ": '" + printable(trim(text)) + "' is no number");
  return *value;
}

}  // namespace

std::string pci_folder(const Root& root, const PciAddress& address) {
  return root.path("/sys/bus/pci/devices/" + address.text());
}

Result<std::optional<int>> numa_node(const Root& root, const PciAddress& address) {
  CORRAL_TRY(const int node, read_number<int>(pci_folder(root, address) + "/numa_node"));
  if (node < 0) return std::nullopt;
  return node;
}

Result<std::vector<std::string>> drm_nodes(const Root& root, const PciAddress& address) {
  const std::string folder = pci_folder(root, address);
  const auto names = list_folder(folder + "/drm");
  if (!names) {
    // The folder exists only with a DRM driver; the function itself must be there.
    if (names.error().sys != ENOENT) return std::unexpected(names.error());
    CORRAL_CHECK(list_folder(folder));
    return std::vector<std::string>();
  }
  std::vector<std::string> out;
  for (const std::string& name : *names)
    // "controlD64" of old kernels and connectors ("card1-DP-1") have no node of their own.
    if ((name.starts_with("card") && name.find('-') == std::string::npos) ||
        name.starts_with("renderD"))
      out.push_back(root.path("/dev/dri/" + name));
  return out;
}

Result<PciLink> pci_link(const Root& root, const PciAddress& address) {
  const std::string folder = pci_folder(root, address);
  PciLink out;
  CORRAL_TRY(const std::string speed, read_file(folder + "/current_link_speed"));
  CORRAL_TRY(const std::string max_speed, read_file(folder + "/max_link_speed"));
  CORRAL_TRY(out.width, read_number<unsigned>(folder + "/current_link_width"));
  CORRAL_TRY(out.max_width, read_number<unsigned>(folder + "/max_link_width"));
  out.speed = trim(speed);
  out.max_speed = trim(max_speed);
  return out;
}

}  // namespace corral::host

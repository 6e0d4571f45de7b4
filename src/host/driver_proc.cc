// SPDX-License-Identifier: Apache-2.0
// Reading /proc/driver/nvidia.
#include "host/driver_proc.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <tuple>

#include "base/file.h"
#include "base/text.h"

namespace corral::host {
namespace {

constexpr std::string_view kDriver = "/proc/driver/nvidia";

// "580.159.04": digits, with at least one dot between digits.
bool looks_like_version(std::string_view word) {
  const auto parts = split(word, '.');
  return parts.size() >= 2 && std::ranges::all_of(parts, [](std::string_view part) {
           return part.size() <= 9 && parse_number<unsigned>(part).has_value();
         });
}

// N of "gi7" with the prefix "gi".
std::optional<unsigned> numbered(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  return parse_number<unsigned>(name.substr(prefix.size()));
}

struct Numbered {
  unsigned number;
  std::string path;
};

// Subfolders "prefixN", none where the folder is missing.
Result<std::vector<Numbered>> numbered_folders(const std::string& folder, std::string_view prefix) {
  const auto names = list_folder(folder);
  if (!names) {
    if (names.error().sys == ENOENT) return std::vector<Numbered>();
    return std::unexpected(names.error());
  }
  std::vector<Numbered> out;
  for (const std::string& name : *names)
    if (const auto number = numbered(name, prefix)) out.push_back({*number, folder + "/" + name});
  std::ranges::sort(out, {}, &Numbered::number);
  return out;
}

Result<std::string> capability_node(const Root& root, const std::string& access) {
  CORRAL_TRY(const std::string text, read_file(access));
  const auto values = parse_key_values(text);
  const auto minor = values.find("DeviceFileMinor");
  if (minor == values.end()) return fail(access + ": no DeviceFileMinor in it");
  const auto number = parse_number<unsigned>(minor->second);
  if (!number)
    return fail(access + ": DeviceFileMinor '" + printable(minor->second) + "' is no number");
  return root.path(fmt::format("/dev/nvidia-caps/nvidia-cap{}", *number));
}

}  // namespace

std::map<std::string, std::string, std::less<>> parse_key_values(std::string_view text) {
  std::map<std::string, std::string, std::less<>> out;
  for (const std::string_view line : split(text, '\n')) {
    const auto colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    out.insert_or_assign(std::string(trim(line.substr(0, colon))),
                         std::string(trim(line.substr(colon + 1))));
  }
  return out;
}

Result<std::string> parse_driver_version(std::string_view text) {
  // "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (…)": the
  // words before the number differ between open and closed module, its form does not.
  for (const std::string_view line : split(text, '\n')) {
    if (!line.starts_with("NVRM version:")) continue;
    for (const std::string_view word : split(line, ' '))
      if (looks_like_version(word)) return std::string(word);
  }
  return fail("no driver version in a line 'NVRM version:'");
}

Result<DriverGpu> parse_gpu_information(std::string_view folder, std::string_view text) {
  const auto values = parse_key_values(text);
  const auto value = [&](std::string_view key) {
    const auto it = values.find(key);
    return it == values.end() ? std::string() : it->second;
  };
  DriverGpu gpu;
  if (auto address = PciAddress::parse(folder)) {
    gpu.pci = *address;
  } else {
    CORRAL_TRY(gpu.pci, PciAddress::parse(value("Bus Location")));
  }
  gpu.name = value("Model");
  if (gpu.name == "Unknown") gpu.name.clear();
  gpu.uuid = value("GPU UUID");
  // A GPU that was never started reads "GPU-????????-…": no UUID, and it must never be compared. A
  // UUID that is cut short would be taken for another GPU's prefix.
  constexpr std::size_t kUuidLength = 40;
  if (gpu.uuid.size() != kUuidLength || gpu.uuid.find('?') != std::string::npos) gpu.uuid.clear();
  gpu.minor = parse_number<unsigned>(value("Device Minor"));
  gpu.excluded = value("GPU Excluded") == "Yes";
  return gpu;
}

Result<std::string> read_driver_version(const Root& root) {
  const std::string path = root.path(fmt::format("{}/version", kDriver));
  CORRAL_TRY(const std::string text, read_file(path));
  auto version = parse_driver_version(text);
  if (!version) return fail(path + ": " + version.error().what);
  return version;
}

Result<DriverGpus> read_driver_gpus(const Root& root) {
  const std::string folder = root.path(fmt::format("{}/gpus", kDriver));
  CORRAL_TRY(const std::vector<std::string> names, list_folder(folder));
  DriverGpus out;
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name + "/information";
    const auto text = read_file(path);
    // The folder's name alone says that there is a GPU and where: it is kept with the rest unknown.
    auto gpu = parse_gpu_information(name, text ? *text : std::string());
    if (!text)
      out.unread.push_back(text.error().what);
    else if (!gpu)
      out.unread.push_back(path + ": " + gpu.error().what);
    if (gpu) out.gpus.push_back(*std::move(gpu));
  }
  std::ranges::sort(out.gpus, {}, &DriverGpu::pci);
  return out;
}

Result<std::map<std::string, std::string, std::less<>>> read_driver_params(const Root& root) {
  CORRAL_TRY(const std::string text, read_file(root.path(fmt::format("{}/params", kDriver))));
  return parse_key_values(text);
}

Result<std::vector<MigCapability>> read_mig_capabilities(const Root& root) {
  std::vector<MigCapability> out;
  CORRAL_TRY(const auto gpus,
             numbered_folders(root.path(fmt::format("{}/capabilities", kDriver)), "gpu"));
  for (const auto& gpu : gpus) {
    CORRAL_TRY(const auto gpu_instances, numbered_folders(gpu.path + "/mig", "gi"));
    for (const auto& gi : gpu_instances) {
      CORRAL_TRY(const std::string gi_node, capability_node(root, gi.path + "/access"));
      CORRAL_TRY(const auto compute_instances, numbered_folders(gi.path, "ci"));
      for (const auto& ci : compute_instances) {
        CORRAL_TRY(const std::string ci_node, capability_node(root, ci.path + "/access"));
        out.push_back({gpu.number, gi.number, ci.number, {gi_node, ci_node}});
      }
    }
  }
  return out;
}

}  // namespace corral::host

// SPDX-License-Identifier: Apache-2.0
#include "mps/share.h"

#include <fmt/format.h>

#include <cmath>

#include "base/text.h"

namespace corral::mps {
namespace {

constexpr std::uint64_t kMib = 1U << 20;
constexpr const char* kHint =
    "--mps 30% or --mps 30%,8G: of the multiprocessors, and device memory";

std::optional<double> percentage(std::string_view text) {
  const auto number = parse_number<double>(text);
  if (!number || !std::isfinite(*number) || *number <= 0 || *number > 100) return std::nullopt;
  return number;
}

// Units as the driver takes them in its variable.
std::optional<unsigned> unit_shift(char unit) {
  switch (unit) {
    case 'K':
    case 'k':
      return 10;
    case 'M':
    case 'm':
      return 20;
    case 'G':
    case 'g':
      return 30;
    default:
      return std::nullopt;
  }
}

}  // namespace

Result<Share> parse_share(std::string_view text) {
  Share share;
  const std::size_t comma = text.find(',');
  std::string_view percent = text.substr(0, comma);
  if (percent.ends_with('%')) percent.remove_suffix(1);
  const auto number = percentage(percent);
  if (!number)
    return fail(fmt::format("--mps {}: \"{}\" is not a percentage above 0 and at most 100",
                            printable(text), printable(text.substr(0, comma))),
                kHint);
  share.percent = *number;
  if (comma == text.npos) return share;
  auto bytes = isolate::parse_memory_limit(text.substr(comma + 1), "--mps");
  if (!bytes) return std::unexpected(std::move(bytes).error());
  share.memory_bytes = *bytes / kMib * kMib;
  return share;
}

std::string share_text(const Share& share) {
  std::string text = fmt::format("{} % of the multiprocessors", share.percent);
  if (share.memory_bytes) text += fmt::format(" and {} MiB", *share.memory_bytes / kMib);
  return text;
}

std::vector<isolate::Setting> client_settings(const Share& share, const std::string& pipe_folder,
                                              const std::string& log_folder) {
  std::vector<isolate::Setting> settings = {
      {"CUDA_MPS_PIPE_DIRECTORY", pipe_folder},
      {"CUDA_MPS_LOG_DIRECTORY", log_folder},
      {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", fmt::format("{}", share.percent)}};
  if (share.memory_bytes)
    settings.push_back(
        {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", fmt::format("0={}M", *share.memory_bytes / kMib)});
  return settings;
}

std::optional<double> percent_of(const std::optional<std::string>& variable) {
  return variable ? percentage(trim(*variable)) : std::nullopt;
}

std::optional<std::uint64_t> memory_limit_of(const std::optional<std::string>& variable) {
  if (!variable) return std::nullopt;
  for (const std::string_view part : split(*variable, ',')) {
    const std::string_view entry = trim(part);
    if (!entry.starts_with("0=")) continue;
    const std::size_t unit = entry.find_first_not_of("0123456789", 2);
    const auto amount = parse_number<std::uint64_t>(entry.substr(2, unit - 2));
    if (!amount || unit == entry.npos || *amount >= (1ULL << 30)) return std::nullopt;
    const auto shift = unit_shift(entry[unit]);
    if (!shift) return std::nullopt;
    return *amount << *shift;
  }
  return std::nullopt;
}

}  // namespace corral::mps

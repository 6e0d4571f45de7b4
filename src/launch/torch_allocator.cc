// SPDX-License-Identifier: Apache-2.0
// The settings of PyTorch's CUDA allocator. What it accepts was read from its sources: an option
// that it does not know, or a value out of range, ends the job at its first use of CUDA.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "base/text.h"
#include "launch/allocator_options.h"
#include "launch/option_list.h"

namespace corral::launch {
namespace {

enum class Values {
  truth,
  backend,
  megabytes,          // any number
  split_megabytes,    // at least as large as a segment
  segment_megabytes,  // more than 10
  some_megabytes,     // more than 0
  inner_fraction,     // 0 < x < 1
  fraction,           // 0 <= x <= 1
  threads,            // a power of two, at most 128
  divisions,          // 4, or [256:1,512:2,>:4]
  reserve,            // 0.5, or 40G
  reserves_by_class,  // [name:0.5,name:40G]
};

struct TorchOption {
  std::string_view name;
  Values values;
  bool of_native = false;       // the async backend has no use for it
  std::string_view needs{};     // another option that must be True for it to have an effect
  std::string_view versions{};  // which know it, where not every one since 2.6 does
};

constexpr std::array kOptions = {
    TorchOption{.name = "backend", .values = Values::backend},
    TorchOption{.name = "expandable_segments", .values = Values::truth, .of_native = true},
    TorchOption{.name = "max_split_size_mb", .values = Values::split_megabytes, .of_native = true},
    TorchOption{
        .name = "max_non_split_rounding_mb", .values = Values::split_megabytes, .of_native = true},
    TorchOption{.name = "roundup_power2_divisions", .values = Values::divisions, .of_native = true},
    TorchOption{.name = "garbage_collection_threshold",
                .values = Values::inner_fraction,
                .of_native = true},
    TorchOption{.name = "large_segment_size_mb",
                .values = Values::segment_megabytes,
                .of_native = true,
                .versions = "since torch 2.11"},
    TorchOption{.name = "release_lock_on_cudamalloc", .values = Values::truth, .of_native = true},
    TorchOption{.name = "release_lock_on_hipmalloc", .values = Values::truth, .of_native = true},
    TorchOption{.name = "graph_capture_record_stream_reuse",
                .values = Values::truth,
                .of_native = true,
                .versions = "since torch 2.9"},
    TorchOption{.name = "per_process_memory_fraction",
                .values = Values::fraction,
                .versions = "since torch 2.10"},
    TorchOption{.name = "throw_on_cudamalloc_oom",
                .values = Values::truth,
                .of_native = true,
                .versions = "since torch 2.12"},
    TorchOption{.name = "expandable_segments_reserve",
                .values = Values::reserve,
                .of_native = true,
                .needs = "expandable_segments",
                .versions = "newer than torch 2.13"},
    TorchOption{.name = "expandable_segments_reserve_by_class",
                .values = Values::reserves_by_class,
                .of_native = true,
                .needs = "expandable_segments",
                .versions = "newer than torch 2.13"},
    TorchOption{.name = "roundup_bypass_threshold_mb",
                .values = Values::megabytes,
                .of_native = true,
                .versions = "only in torch 1.13 and 2.0"},
    TorchOption{.name = "pinned_use_cuda_host_register", .values = Values::truth},
    TorchOption{.name = "pinned_use_hip_host_register", .values = Values::truth},
    TorchOption{.name = "pinned_num_register_threads",
                .values = Values::threads,
                .needs = "pinned_use_cuda_host_register"},
    TorchOption{.name = "pinned_use_background_threads", .values = Values::truth},
    TorchOption{.name = "pinned_reserve_segment_size_mb",
                .values = Values::some_megabytes,
                .versions = "since torch 2.10"},
    TorchOption{.name = "pinned_max_round_threshold_mb",
                .values = Values::megabytes,
                .versions = "since torch 2.13"},
    TorchOption{.name = "pinned_max_cached_size_mb",
                .values = Values::megabytes,
                .versions = "since torch 2.13"},
    TorchOption{.name = "pinned_free_catch_all",
                .values = Values::truth,
                .versions = "newer than torch 2.10"},
};

constexpr auto kNames = [] {
  std::array<std::string_view, kOptions.size()> names{};
  std::ranges::transform(kOptions, names.begin(), &TorchOption::name);
  return names;
}();

constexpr OptionSource kSource{.option = "--torch-alloc",
                               .framework = "PyTorch",
                               .example = "expandable_segments:True,max_split_size_mb:128",
                               .names = kNames};

constexpr std::uint64_t kDefaultSegmentMb = 20;  // kLargeBuffer of the allocator
constexpr std::uint64_t kLeastSegmentMb = 10;    // a segment is larger: kMinLargeAlloc
constexpr std::uint64_t kMostThreads = 128;      // pinned_max_register_threads()

const TorchOption& option_of(const GivenOption& given) {
  return *std::ranges::find(kOptions, given.name, &TorchOption::name);
}

// Older versions read an int.
std::optional<std::uint64_t> number(std::string_view text) {
  const auto value = parse_number<std::uint64_t>(text);
  if (!value || *value > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
  return value;
}

bool is_power_of_two(std::optional<std::uint64_t> value) {
  return value && std::has_single_bit(*value);
}

bool is_reserve(std::string_view text) {
  if (text.ends_with('G') || text.ends_with('g')) text.remove_suffix(1);
  const auto value = decimal(text);
  return value.value_or(0) > 0;
}

// The "key:value" of a list in brackets; nullopt: it is none.
std::optional<std::vector<std::pair<std::string_view, std::string_view>>> pairs_of(
    std::string_view text) {
  if (!text.starts_with('[') || !text.ends_with(']')) return std::nullopt;
  std::vector<std::pair<std::string_view, std::string_view>> out;
  for (const std::string_view entry : split(text.substr(1, text.size() - 2), ',')) {
    const std::size_t colon = entry.find(':');
    if (colon == entry.npos || colon == 0) return std::nullopt;
    out.emplace_back(entry.substr(0, colon), entry.substr(colon + 1));
  }
  return out;
}

bool are_divisions(std::string_view text) {
  if (!text.starts_with('[')) return is_power_of_two(number(text));
  const auto pairs = pairs_of(text);
  return pairs && std::ranges::all_of(*pairs, [](const auto& pair) {
           const auto divisions = number(pair.second);
           return (pair.first == ">" || is_power_of_two(number(pair.first))) &&
                  (divisions == 0U || is_power_of_two(divisions));
         });
}

bool are_reserves(std::string_view text) {
  const auto pairs = pairs_of(text);
  return pairs &&
         std::ranges::all_of(*pairs, [](const auto& pair) { return is_reserve(pair.second); });
}

std::uint64_t segment_mb(const std::vector<GivenOption>& given) {
  const auto at = std::ranges::find(given, "large_segment_size_mb", &GivenOption::name);
  return at == given.end() ? kDefaultSegmentMb : number(at->value).value_or(kDefaultSegmentMb);
}

Result<void> must(bool right, const GivenOption& given, std::string_view wanted) {
  if (right) return {};
  return wrong_value(kSource, given, fmt::format("wanted is {}", wanted),
                     "PyTorch would refuse it, and with it every setting beside it");
}

Result<void> check_value(const GivenOption& given, std::uint64_t segment) {
  const std::string& text = given.value;
  const auto mb = number(text);
  const auto share = decimal(text);
  switch (option_of(given).values) {
    case Values::truth:
      return must(text == "True" || text == "False", given, "True or False, written like that");
    case Values::backend:
      return must(text == "native" || text == "cudaMallocAsync", given,
                  "native or cudaMallocAsync");
    case Values::megabytes:
      return must(mb.has_value(), given, "a number of MiB");
    case Values::some_megabytes:
      return must(mb.value_or(0) > 0, given, "a number of MiB, at least 1");
    case Values::segment_megabytes:
      return must(mb.value_or(0) > kLeastSegmentMb, given,
                  fmt::format("a number of MiB, more than {}", kLeastSegmentMb));
    case Values::split_megabytes:
      return must(mb.value_or(0) >= segment, given,
                  fmt::format("a number of MiB, at least {}: that is a segment", segment));
    case Values::inner_fraction:
      return must(share.value_or(0) > 0 && *share < 1, given, "between 0 and 1, without both");
    case Values::fraction:
      return must(share.value_or(-1) >= 0 && *share <= 1, given, "0 to 1");
    case Values::threads:
      return must(is_power_of_two(mb) && *mb <= kMostThreads, given,
                  fmt::format("1, 2, 4 and so on to {}", kMostThreads));
    case Values::divisions:
      return must(are_divisions(text), given,
                  "a power of two, or [256:1,512:2,>:4]: MiB and divisions, powers of two");
    case Values::reserve:
      return must(is_reserve(text), given, "a share of the GPU like 0.5, or GiB like 40G");
    case Values::reserves_by_class:
      return must(are_reserves(text), given, "like [capture:0.25,workspace:40G]");
  }
  return {};
}

bool is_true(const std::vector<GivenOption>& given, std::string_view name) {
  return std::ranges::any_of(
      given, [&](const GivenOption& one) { return one.name == name && one.value == "True"; });
}

// An option that another one leaves without effect is never what was meant.
Result<void> check_together(const std::vector<GivenOption>& given) {
  const bool async = std::ranges::any_of(given, [](const GivenOption& one) {
    return one.name == "backend" && one.value == "cudaMallocAsync";
  });
  for (const GivenOption& one : given) {
    const TorchOption& option = option_of(one);
    if (async && option.of_native && one.value != "False")
      return wrong_value(kSource, one, "backend:cudaMallocAsync has no use for it",
                         "leave one of the two out");
    if (one.name == "pinned_num_register_threads" && is_true(given, "pinned_use_hip_host_register"))
      continue;
    if (!option.needs.empty() && !is_true(given, option.needs))
      return wrong_value(kSource, one,
                         fmt::format("it has no effect without {}:True", option.needs),
                         fmt::format("add {}:True, or leave it out", option.needs));
  }
  return {};
}

}  // namespace

Result<AllocatorSettings> torch_allocator(std::string_view conf) {
  CORRAL_TRY(const std::vector<GivenOption> given, parse_option_list(kSource, conf));
  AllocatorSettings out;
  std::string text;
  const std::uint64_t segment = segment_mb(given);
  for (const GivenOption& one : given) {
    CORRAL_CHECK(check_value(one, segment));
    text += (text.empty() ? "" : ",") + one.name + ":" + one.value;
    if (const std::string_view versions = option_of(one).versions; !versions.empty())
      out.remarks.push_back(
          fmt::format("{}: {}; others refuse every setting with it", one.name, versions));
  }
  CORRAL_CHECK(check_together(given));
  // Up to 2.8 only the second is read; later ones read both names, in an order that changed, and
  // 2.9 finds expandable_segments under the second alone.
  out.variables = {{"PYTORCH_ALLOC_CONF", text}, {"PYTORCH_CUDA_ALLOC_CONF", text}};
  return out;
}

}  // namespace corral::launch

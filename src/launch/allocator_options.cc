// SPDX-License-Identifier: Apache-2.0
// The allocators of JAX and TensorFlow, and what the environment already says.
#include "launch/allocator_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "launch/option_list.h"

namespace corral::launch {
namespace {

constexpr std::array<std::string_view, 3> kJaxNames = {"preallocate", "fraction", "allocator"};
constexpr OptionSource kJax{.option = "--jax-alloc",
                            .framework = "JAX",
                            .example = "preallocate:false,fraction:0.5",
                            .names = kJaxNames};

constexpr std::array<std::string_view, 2> kTensorflowNames = {"growth", "allocator"};
constexpr OptionSource kTensorflow{.option = "--tf-alloc",
                                   .framework = "TensorFlow",
                                   .example = "growth:true,allocator:cuda_malloc_async",
                                   .names = kTensorflowNames};

constexpr const char* kFraction = "XLA_PYTHON_CLIENT_MEM_FRACTION";
// JAX refuses to start when it finds both.
constexpr const char* kNewerFraction = "XLA_CLIENT_MEM_FRACTION";

Result<void> must_be_one_of(const OptionSource& source, const GivenOption& given,
                            std::initializer_list<std::string_view> values) {
  if (std::ranges::find(values, given.value) != values.end()) return {};
  return wrong_value(source, given, fmt::format("wanted is {}", fmt::join(values, ", ")), "");
}

Result<void> check_fraction(const GivenOption& given) {
  const auto share = decimal(given.value);
  if (share.value_or(0) > 0 && *share <= 1) return {};
  return wrong_value(kJax, given, "wanted is a share of the GPU's memory, over 0 and at most 1",
                     "more than 1 needs unified memory: set XLA_PYTHON_CLIENT_MEM_FRACTION and "
                     "TF_FORCE_UNIFIED_MEMORY=1 by hand");
}

std::string value_of(const std::vector<GivenOption>& given, std::string_view name) {
  const auto at = std::ranges::find(given, name, &GivenOption::name);
  return at == given.end() ? std::string() : at->value;
}

const isolate::Setting* find(const AllocatorSettings& settings, std::string_view name) {
  const auto at = std::ranges::find(settings.variables, name, &isolate::Setting::name);
  return at == settings.variables.end() ? nullptr : &*at;
}

}  // namespace

Result<AllocatorSettings> jax_allocator(std::string_view conf) {
  CORRAL_TRY(const std::vector<GivenOption> given, parse_option_list(kJax, conf));
  AllocatorSettings out;
  for (const GivenOption& one : given) {
    if (one.name == "preallocate") {
      CORRAL_CHECK(must_be_one_of(kJax, one, {"true", "false"}));
      out.variables.push_back({"XLA_PYTHON_CLIENT_PREALLOCATE", one.value});
    } else if (one.name == "fraction") {
      CORRAL_CHECK(check_fraction(one));
      out.variables.push_back({kFraction, one.value});
    } else {
      CORRAL_CHECK(must_be_one_of(kJax, one, {"default", "bfc", "platform", "cuda_async"}));
      out.variables.push_back({"XLA_PYTHON_CLIENT_ALLOCATOR", one.value});
    }
  }
  if (value_of(given, "allocator") != "platform") return out;
  for (const GivenOption& one : given)
    if (one.name == "fraction" || (one.name == "preallocate" && one.value == "true"))
      return wrong_value(kJax, one,
                         "allocator:platform asks the driver each time and keeps nothing",
                         "leave one of the two out");
  return out;
}

Result<AllocatorSettings> tensorflow_allocator(std::string_view conf) {
  CORRAL_TRY(const std::vector<GivenOption> given, parse_option_list(kTensorflow, conf));
  AllocatorSettings out;
  for (const GivenOption& one : given) {
    if (one.name == "growth") {
      CORRAL_CHECK(must_be_one_of(kTensorflow, one, {"true", "false"}));
      out.variables.push_back({"TF_FORCE_GPU_ALLOW_GROWTH", one.value});
    } else {
      CORRAL_CHECK(
          must_be_one_of(kTensorflow, one, {"cuda_malloc_async", "cuda_malloc", "memory_guard"}));
      out.variables.push_back({"TF_GPU_ALLOCATOR", one.value});
    }
  }
  if (value_of(given, "allocator") == "cuda_malloc" && value_of(given, "growth") == "false")
    return wrong_value(kTensorflow, {.name = "growth", .value = "false"},
                       "allocator:cuda_malloc asks the driver each time and keeps nothing",
                       "leave one of the two out");
  return out;
}

std::vector<std::string> settle_with(const Environment& environment, AllocatorSettings& settings) {
  std::vector<std::string> notes;
  if (find(settings, kFraction) != nullptr && !environment.get(kNewerFraction).value_or("").empty())
    settings.variables.push_back({kNewerFraction, ""});
  for (const isolate::Setting& setting : settings.variables) {
    const std::string there = environment.get(setting.name).value_or("");
    if (there.empty() || there == setting.value) continue;
    notes.push_back(fmt::format("{} is {} in the environment: the job gets {}", setting.name, there,
                                setting.value.empty() ? "it empty" : setting.value));
  }
  constexpr const char* kNoCaching = "PYTORCH_NO_CUDA_MEMORY_CACHING";
  if (find(settings, "PYTORCH_CUDA_ALLOC_CONF") != nullptr &&
      !environment.get(kNoCaching).value_or("").empty())
    notes.push_back(fmt::format(
        "{} is set in the environment: PyTorch caches nothing, and --torch-alloc is without effect",
        kNoCaching));
  return notes;
}

}  // namespace corral::launch

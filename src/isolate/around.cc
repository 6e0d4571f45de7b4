// SPDX-License-Identifier: Apache-2.0
#include "isolate/around.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "host/number_list.h"

namespace corral::isolate {
namespace {

using Kind = host::Surrounding::Kind;

// The first of these that is set says what was given.
std::vector<std::string_view> variables_of(const host::Surrounding& place) {
  if (place.kind == Kind::slurm) return {"SLURM_STEP_GPUS", "SLURM_JOB_GPUS"};
  if (place.is_batch()) return {"CUDA_VISIBLE_DEVICES"};
  return {"NVIDIA_VISIBLE_DEVICES"};
}

bool is_uuid(std::string_view word) { return word.size() > 4 && word.starts_with("GPU-"); }

// Whole UUIDs or beginnings of them, as the driver takes them.
std::optional<unsigned> by_uuid(std::string_view word, const gpu::Inventory& inventory) {
  for (const gpu::Gpu& gpu : inventory.gpus)
    if (!gpu.uuid.empty() && lower(gpu.uuid).starts_with(lower(word))) return gpu.index;
  return std::nullopt;
}

std::string_view value_of(const Around& around) {
  return std::string_view(around.given_by).substr(around.given_by.find('=') + 1);
}

void read_given(const host::Variables& variables, const gpu::Inventory& inventory, Around& around) {
  for (const std::string_view name : variables_of(around.place)) {
    const auto value = host::find_variable(variables, name);
    if (!value || value->empty()) continue;
    around.given_by = std::string(name) + "=" + *value;
    break;
  }
  const std::string_view value = value_of(around);
  // "void" is what a CDI file sets: the devices came another way. CUDA_VISIBLE_DEVICES is as often
  // the user's own as the batch system's.
  if (around.given_by.empty() || value == "all" || value == "void" ||
      around.given_by.starts_with("CUDA"))
    return;
  if (value == "none" || value == "NoDevFiles") {
    around.given_count = 0;
    around.given.emplace();
    return;
  }
  if (const auto numbers = host::parse_number_list(value)) {
    around.given_count = static_cast<unsigned>(numbers->size());
    return;
  }
  const std::vector<std::string_view> words = split(value, ',');
  if (!std::ranges::all_of(words, is_uuid)) return;
  around.given_count = static_cast<unsigned>(words.size());
  around.given.emplace();
  // One that is not in the inventory cannot be opened; it is given all the same.
  for (const std::string_view word : words)
    if (const auto index = by_uuid(word, inventory)) around.given->push_back(*index);
  std::ranges::sort(*around.given);
}

std::string gpus_text(const std::vector<unsigned>& indices) {
  if (indices.empty()) return "no GPU";
  std::vector<std::string> numbers;
  for (const unsigned index : indices) numbers.push_back(std::to_string(index));
  return "GPU " + join_and(numbers);
}

std::string count_text(unsigned count) {
  return fmt::format("{} GPU{}", count, count == 1 ? "" : "s");
}

bool is_subset(const std::vector<unsigned>& some, const std::vector<unsigned>& all) {
  return std::ranges::all_of(
      some, [&](unsigned one) { return std::ranges::find(all, one) != all.end(); });
}

std::optional<bool> is_held(const Around& around, const gpu::Inventory& inventory) {
  const bool all_known = std::ranges::all_of(
      inventory.gpus, [](const gpu::Gpu& gpu) { return gpu.accessible.has_value(); });
  if (!around.given_count || !all_known) return std::nullopt;
  if (around.given) return is_subset(around.openable, *around.given);
  return around.openable.size() <= *around.given_count;
}

std::string why_not_held(const host::Surrounding& place) {
  if (place.kind == Kind::slurm)
    return place.in_its_cgroup ? "nothing keeps the job to its own, as with ConstrainDevices=no"
                               : "this process is in no cgroup of the job's";
  return place.privileged ? "the container is privileged"
                          : "the container was given more nodes than the variable names";
}

std::string describe(const Around& around, const gpu::Inventory& inventory) {
  const host::Surrounding& place = around.place;
  std::string text = fmt::format("in {}{} ({})", place.privileged ? "privileged " : "", place.name,
                                 place.evidence);
  if (inventory.gpus.empty() && inventory.hidden.empty()) return text + "; there is no GPU here";
  const std::string open = gpus_text(around.openable);
  if (around.given_by.empty())
    return text + fmt::format(", which names no GPU; {} can be opened", open);
  if (!around.given_count)
    return text + fmt::format(", {}; {} can be opened", around.given_by, open);
  text += fmt::format(", given {} ({})", count_text(*around.given_count), around.given_by);
  if (!around.held) return text + "; which can be opened is not known";
  if (!*around.held)
    return text + fmt::format(", but {} can be opened: {}", open, why_not_held(place));
  if (around.openable.size() < *around.given_count)
    return text + fmt::format(", but only {} can be opened", open);
  return text + (inventory.hidden.empty()
                     ? ": all that there is"
                     : fmt::format(": held, of {} only {} can be opened",
                                   inventory.gpus.size() + inventory.hidden.size(), open));
}

}  // namespace

std::optional<std::vector<unsigned>> given_by_minor(const Around& around,
                                                    const gpu::Inventory& inventory) {
  if (!around.place.is_batch() || around.given_by.empty()) return std::nullopt;
  const auto numbers = host::parse_number_list(value_of(around));
  if (!numbers) return std::nullopt;
  std::vector<unsigned> indices;
  for (const unsigned number : *numbers) {
    const auto gpu = std::ranges::find(inventory.gpus, number, &gpu::Gpu::minor);
    if (gpu == inventory.gpus.end()) return std::nullopt;
    indices.push_back(gpu->index);
  }
  std::ranges::sort(indices);
  return indices;
}

std::vector<Around> judge_surroundings(const std::vector<host::Surrounding>& surroundings,
                                       const host::Variables& variables,
                                       const gpu::Inventory& inventory) {
  std::vector<Around> all;
  for (const host::Surrounding& place : surroundings) {
    Around around{.place = place};
    for (const gpu::Gpu& gpu : inventory.gpus)
      if (gpu.accessible != false) around.openable.push_back(gpu.index);
    read_given(variables, inventory, around);
    around.held = is_held(around, inventory);
    around.text = describe(around, inventory);
    all.push_back(std::move(around));
  }
  return all;
}

}  // namespace corral::isolate

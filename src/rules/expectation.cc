// SPDX-License-Identifier: Apache-2.0
#include "rules/expectation.h"

#include <fmt/format.h>

#include <algorithm>
#include <expected>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/text.h"

namespace corral::rules {
namespace {

using snapshot::Context;
using snapshot::Init;
using snapshot::Run;

// Whether `entry` is the beginning of exactly one whole GPU's UUID.
bool names_one(std::span<const snapshot::GpuRun* const> gpus, std::string_view entry) {
  return std::ranges::count_if(gpus, [&](const snapshot::GpuRun* gpu) {
           return lower(gpu->gpu.uuid).starts_with(lower(entry));
         }) == 1;
}

// How many devices a process saw that made a context (driver 580.159): the list ends at the first
// entry that names none or is not of the first one's kind, and a number ends where its digits do.
// Of MIG instances it is one.
std::size_t visible_count(const Run& run, const std::optional<std::string>& visible) {
  std::vector<const snapshot::GpuRun*> whole;
  for (const snapshot::GpuRun& gpu : run.gpus)
    if (!gpu.gpu.mig_enabled.value_or(false)) whole.push_back(&gpu);
  if (!visible || whole.empty()) return std::max<std::size_t>(whole.size(), 1);
  const bool by_uuid = visible->starts_with("GPU-");
  std::size_t count = 0;
  for (const std::string_view field : split(*visible, ',')) {
    const std::string_view entry = trim(field);
    const std::string_view digits = entry.substr(0, entry.find_first_not_of("0123456789"));
    const auto number = parse_number<std::size_t>(digits);
    if (by_uuid ? !names_one(whole, entry) : (!number || *number >= whole.size())) break;
    ++count;
  }
  return std::max<std::size_t>(count, 1);
}

// The only right device of a process, nullopt: whichever it uses, or why it cannot be told.
std::expected<std::optional<int>, std::string> expected_ordinal(const Run& run,
                                                                const Context& context) {
  const Init* const init = snapshot::init_of(run, context);
  if (init == nullptr) return std::unexpected("its cuInit was not seen");
  const std::size_t visible = visible_count(run, init->visible_devices);
  if (visible == 1) return std::nullopt;
  const auto variable = local_rank_variable(*init);
  if (!variable) return std::unexpected("it has no rank variable");
  const auto& [name, text] = *variable;
  const auto rank = parse_number<int>(text);
  if (!rank || *rank < 0) return std::unexpected(fmt::format("{}={} is no rank", name, text));
  if (static_cast<std::size_t>(*rank) >= visible)
    return std::unexpected(fmt::format("it sees {} GPUs and has {}={}", visible, name, *rank));
  return *rank;
}

void judge_by_rank(const Run& run, Context& context, std::set<pid_t>& told,
                   std::vector<NotChecked>& not_checked) {
  const auto ordinal = expected_ordinal(run, context);
  if (ordinal) {
    context.stray = *ordinal && context.ordinal && context.gpu && *context.ordinal != **ordinal;
  } else if (told.insert(context.pid).second) {
    not_checked.push_back(
        {std::string(kExpectRank),
         fmt::format("pid {} ({}): {}", context.pid, context.process, ordinal.error())});
  }
}

}  // namespace

std::optional<std::pair<std::string, std::string>> local_rank_variable(const Init& init) {
  for (const char* name :
       {"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"})
    if (const auto at = init.rank_variables.find(name); at != init.rank_variables.end()) return *at;
  return std::nullopt;
}

std::vector<NotChecked> mark_strays(Run& run) {
  std::vector<NotChecked> not_checked;
  std::set<pid_t> told;
  for (Context& context : run.contexts) {
    context.stray = context.gpu && *context.gpu < run.gpus.size() &&
                    snapshot::is_outside(run, run.gpus[*context.gpu]);
    if (run.expectation.kind == snapshot::Expectation::Kind::rank)
      judge_by_rank(run, context, told, not_checked);
    // Refused means that the process itself found it outside.
    if (context.denied) context.stray = true;
  }
  return not_checked;
}

}  // namespace corral::rules

// SPDX-License-Identifier: Apache-2.0
#include "report/context_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/text.h"
#include "rules/context_words.h"

namespace corral::report {
namespace {

using snapshot::Context;
using snapshot::Run;

constexpr std::size_t kMaxLines = 12;

struct Group {
  const Context* first = nullptr;
  std::string origin;
  std::size_t contexts = 0;
  std::set<pid_t> pids;
};

std::vector<Group> groups_of(const Run& run) {
  using Key = std::tuple<std::string, std::string, bool, bool, bool>;
  std::vector<Group> groups;
  std::map<Key, std::size_t> places;
  for (const Context& context : run.contexts) {
    const std::string origin = rules::origin(context);
    const Key key{context.gpu_uuid, origin, context.stray, context.denied, context.found};
    const auto [at, is_new] = places.emplace(key, groups.size());
    if (is_new) groups.push_back({.first = &context, .origin = origin, .contexts = 0, .pids = {}});
    ++groups[at->second].contexts;
    groups[at->second].pids.insert(context.pid);
  }
  std::ranges::stable_sort(groups, std::greater<>(),
                           [](const Group& group) { return group.first->stray; });
  return groups;
}

std::string kind_words(const Context& context, const TextWriter& w) {
  if (context.denied) return w.strong("refused", kRed) + " a context";
  return context.stray ? w.strong("stray", kRed) + " context" : std::string("context");
}

std::string more_words(const Group& group) {
  if (group.contexts == 1) return "";
  if (group.pids.size() == 1) return fmt::format(", {} times", group.contexts);
  return fmt::format(", and the same in {} more process{}", group.pids.size() - 1,
                     group.pids.size() == 2 ? "" : "es");
}

void group_line(const Group& group, TextWriter& w) {
  const Context& context = *group.first;
  const std::string gpu = context.gpu ? std::to_string(*context.gpu) : context.gpu_uuid;
  // Without a stack its origin says already that nobody knows who made it.
  const bool has_finder =
      context.found && !(context.stack.python.empty() && context.stack.native.empty());
  const std::string rank = context.rank ? fmt::format(", rank {}", *context.rank) : "";
  w.line("{} on GPU {} at {:.1f} s: {}{}; pid {} ({}{}){}", kind_words(context, w), gpu,
         context.time_s, group.origin, has_finder ? ", which found it there" : "", context.pid,
         printable(context.process), rank, more_words(group));
}

}  // namespace

void context_lines(const Run& run, TextStyle style, TextWriter& writer) {
  const std::vector<Group> groups = groups_of(run);
  const std::size_t shown = style.verbose ? groups.size() : std::min(groups.size(), kMaxLines);
  for (std::size_t i = 0; i < shown; ++i) group_line(groups[i], writer);
  if (shown < groups.size())
    writer.line("{} more lines of this kind: see --report FILE, or -v", groups.size() - shown);
  if (run.expectation.kind == snapshot::Expectation::Kind::none && !groups.empty())
    writer.line(
        "nothing of this is called a stray: say what the job is meant to use with "
        "--expect 1 or --expect rank");
}

}  // namespace corral::report

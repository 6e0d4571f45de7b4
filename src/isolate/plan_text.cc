// SPDX-License-Identifier: Apache-2.0
// A plan in words and in JSON, for --dry-run and the report.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "isolate/plan.h"

namespace corral::isolate {
namespace {

std::string number_text(const Node& node) {
  switch (node.type) {
    case Node::Type::file:
      return "file";
    case Node::Type::covered:
      return "covered";
    case Node::Type::missing:
      return "not there";
    case Node::Type::character:
    case Node::Type::block:
      return fmt::format("{} {}:{}", static_cast<char>(node.type), node.major, node.minor);
  }
  return {};
}

void add_section(std::string& text, std::string_view title, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  text += fmt::format("{}\n", title);
  for (const std::string& line : lines) text += fmt::format("  {}\n", printable(line));
}

// A plan with layers names what they hold; without any, everything that was to be refused.
bool is_listed(const Plan& plan, const RefusedNode& node) {
  return plan.layers.empty() || is_held(plan, node);
}

// A way out stands under "not covered" already: here is what to type instead.
std::vector<std::string> advice_lines(const Plan& plan) {
  std::vector<std::string> lines;
  for (const Advice& advice : plan.advice) {
    if (!advice.leaves) lines.push_back(advice.what);
    if (!advice.instead.empty()) lines.push_back("instead: " + advice.instead);
  }
  return lines;
}

nlohmann::json around_json(const Around& around) {
  nlohmann::json json = {{"kind", std::string(host::kind_name(around.place.kind))},
                         {"name", around.place.name},
                         {"evidence", around.place.evidence},
                         {"privileged", around.place.privileged},
                         {"openable", around.openable},
                         {"text", around.text}};
  json["given_by"] = around.given_by.empty() ? nlohmann::json() : nlohmann::json(around.given_by);
  json["given_count"] = around.given_count ? nlohmann::json(*around.given_count) : nlohmann::json();
  json["held"] = around.held ? nlohmann::json(*around.held) : nlohmann::json();
  return json;
}

std::string headline(const Plan& plan) {
  if (!plan.layers.empty())
    return fmt::format("confined by {}{} (enforced: {})", join_and(layer_texts(plan)),
                       plan.open_ways.empty() ? "" : ", but for " + join_and(plan.open_ways),
                       plan.enforced);
  if (plan.enforced == "existing") return "confined already; nothing is added (enforced: existing)";
  if (plan.refused.empty()) return "nothing to refuse (enforced: none)";
  return "NOT enforced: only variables are set (enforced: none)";
}

}  // namespace

std::string_view layer_name(Layer layer) {
  switch (layer) {
    case Layer::cgroup2:
      return "cgroup v2";
    case Layer::cgroup1:
      return "cgroup v1";
    case Layer::mount:
      return "mount namespace";
    case Layer::landlock:
      return "Landlock";
    case Layer::landlock_scope:
      return "Landlock scope";
    case Layer::seccomp:
      return "seccomp filter";
  }
  return {};
}

std::vector<std::string> layer_texts(const Plan& plan) {
  std::vector<std::string> texts;
  for (const Layer layer : plan.layers) {
    std::string text(layer_name(layer));
    if (layer == Layer::landlock) text += fmt::format(" ABI {}", plan.landlock_abi);
    texts.push_back(std::move(text));
  }
  return texts;
}

std::string describe(const Plan& plan) {
  std::string text = headline(plan) + "\n";
  std::vector<std::string> lines;
  for (const Around& around : plan.around) lines.push_back(around.text);
  add_section(text, "around us", lines);
  lines.clear();
  for (const RefusedNode& r : plan.refused)
    if (is_listed(plan, r))
      lines.push_back(fmt::format("{:<28} {:<10} {}", r.node.path, number_text(r.node), r.why));
  add_section(text, "refused", lines);
  lines.clear();
  for (const AllowedNode& a : plan.allowed)
    lines.push_back(fmt::format("{:<28} {:<10} {}", a.path, "", a.why));
  add_section(text, "allowed", lines);
  lines.clear();
  for (const Setting& s : plan.environment) lines.push_back(s.name + "=" + s.value);
  add_section(text, "environment", lines);
  lines.clear();
  for (const Limit& limit : plan.limits) lines.push_back(limit_text(limit));
  add_section(text, "limits", lines);
  std::vector<std::string> holes = plan.not_covered;
  holes.insert(holes.end(), plan.general_limits.begin(), plan.general_limits.end());
  add_section(text, "not covered", holes);
  add_section(text, "advice", advice_lines(plan));
  add_section(text, "notes", plan.notes);
  return text;
}

nlohmann::json to_json(const Plan& plan) {
  nlohmann::json refused = nlohmann::json::array();
  for (const RefusedNode& r : plan.refused) {
    if (!is_listed(plan, r)) continue;
    nlohmann::json node = {{"path", r.node.path}, {"why", r.why}};
    const bool numbered = r.node.major != 0;
    node["type"] = std::string(1, static_cast<char>(r.node.type));
    node["major"] = numbered ? nlohmann::json(r.node.major) : nlohmann::json();
    node["minor"] = numbered ? nlohmann::json(r.node.minor) : nlohmann::json();
    refused.push_back(std::move(node));
  }
  nlohmann::json allowed = nlohmann::json::array();
  for (const AllowedNode& a : plan.allowed) allowed.push_back({{"path", a.path}, {"why", a.why}});
  nlohmann::json around = nlohmann::json::array();
  for (const Around& one : plan.around) around.push_back(around_json(one));
  nlohmann::json advice = nlohmann::json::array();
  for (const Advice& one : plan.advice)
    advice.push_back({{"what", one.what}, {"instead", one.instead}, {"leaves", one.leaves}});
  nlohmann::json environment = nlohmann::json::object();
  for (const Setting& s : plan.environment) environment[s.name] = s.value;
  return {{"enforced", plan.enforced},
          {"layers", layer_texts(plan)},
          {"requested", plan.requested},
          {"tight", plan.tight},
          {"as_root", plan.as_root},
          {"no_new_privs", plan.no_new_privs},
          {"user_namespaces", plan.user_namespaces},
          {"refused", refused},
          {"allowed", allowed},
          {"environment", environment},
          {"limits", limits_json(plan.limits)},
          {"not_covered", plan.not_covered},
          {"open_ways", plan.open_ways},
          {"general_limits", plan.general_limits},
          {"around", around},
          {"advice", advice},
          {"notes", plan.notes}};
}

}  // namespace corral::isolate

// SPDX-License-Identifier: Apache-2.0
#include "launch/environment.h"

#include <algorithm>

namespace corral::launch {
namespace {

bool names(std::string_view entry, std::string_view name) {
  return entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=';
}

}  // namespace

Environment::Environment(const char* const* entries) {
  for (; *entries != nullptr; ++entries) entries_.emplace_back(*entries);
}

std::optional<std::string> Environment::get(std::string_view name) const {
  for (const std::string& entry : entries_)
    if (names(entry, name)) return entry.substr(name.size() + 1);
  return std::nullopt;
}

void Environment::unset(std::string_view name) {
  // Every one: a variable given twice would otherwise come back.
  std::erase_if(entries_, [&](const std::string& entry) { return names(entry, name); });
}

void Environment::set(std::string_view name, std::string_view value) {
  unset(name);
  entries_.push_back(std::string(name) + "=" + std::string(value));
}

void Environment::prepend_path(std::string_view name, std::string_view entry) {
  const std::string old = get(name).value_or("");
  set(name, old.empty() ? std::string(entry) : std::string(entry) + ":" + old);
}

}  // namespace corral::launch

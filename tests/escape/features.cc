// SPDX-License-Identifier: Apache-2.0
#include "features.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/text.h"
#include "isolate/facts.h"
#include "isolate/landlock.h"
#include "isolate/mount.h"
#include "isolate/plan.h"

namespace corral::escape {

Missing missing(const Column& column) {
  if (::geteuid() != 0) return {.feature = "root", .why = "the attempts are set up by root"};
  if ((column.landlock || column.tight) && isolate::landlock_abi() == 0)
    return {.feature = "landlock", .why = "this kernel has no Landlock"};
  if (column.mount)
    if (const auto tried = isolate::try_covered_mounts(column.by_user); !tried)
      return {.feature = column.by_user ? "userns" : "root", .why = tried.error().what};
  isolate::Request request;
  request.refuse_paths = {"/dev/null"};
  const auto host = isolate::read_host_facts(request);
  if (!host) return {.feature = "root", .why = host.error().what};
  if (column.cgroup2 && !host->cgroup2_trouble.empty())
    return {.feature = "cgroup2", .why = host->cgroup2_trouble};
  if (column.cgroup1 && !host->cgroup1_devices)
    return {.feature = "cgroup1", .why = "the v1 devices controller is not mounted"};
  return {};
}

bool must_work(std::string_view feature) {
  const char* list = std::getenv("CORRAL_MUST_WORK");
  if (list == nullptr) return false;
  const std::vector<std::string_view> names = split(list, ',');
  return std::ranges::find(names, feature) != names.end();
}

std::string test_name(const Column& column) {
  std::string name = column.name + " as " + column.person;
  std::ranges::replace(name, ' ', '_');
  return name;
}

}  // namespace corral::escape

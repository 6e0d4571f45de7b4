// SPDX-License-Identifier: Apache-2.0
// What a rule says: plain data that every report shows the same way.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace corral::rules {

enum class Severity { info, warning, error };

std::string_view name(Severity severity);

struct Finding {
  std::string id;  // dotted and permanent: "stray.changed-variable"
  Severity severity = Severity::info;
  std::optional<unsigned> gpu;  // nvidia-smi's number
  std::optional<pid_t> pid;
  std::string title;  // one line, names the thing: "pid 4711 made a context on GPU 0"
  std::vector<std::string> evidence;  // the values it rests on
  std::string cause;
  std::string verify;  // how to see it by hand
  std::string fix;
  std::vector<std::size_t> contexts;  // the run's contexts that it explains, by position
};

}  // namespace corral::rules

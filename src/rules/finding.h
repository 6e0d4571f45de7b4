// SPDX-License-Identifier: Apache-2.0
// What a rule says: plain data that every report shows the same way.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "snapshot/run.h"

namespace corral::rules {

enum class Severity { info, warning, error };

std::string_view name(Severity severity);

// Which of two findings comes first where both explain one context: what could have been said of
// any call on the default device comes last, a value that proves the cause first.
enum class Precedence { general, thread, text, call, module, value };

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
  Precedence precedence = Precedence::general;
  std::optional<snapshot::PythonFrame> culprit{};  // a better one than the contexts' own
};

}  // namespace corral::rules

// SPDX-License-Identifier: Apache-2.0
// The options of `corral trace`.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "cli/command.h"
#include "cli/watch_options.h"

namespace corral::cli {

struct TraceOptions : WatchOptions {
  std::optional<std::string> expect;  // a selection or "rank"; nullopt: everything is only shown
  bool deny = false;
};

// The error is a usage error (exit 64); its text names the option and the value.
Result<TraceOptions> parse_trace_options(const Arguments& arguments);

std::string trace_help();

}  // namespace corral::cli

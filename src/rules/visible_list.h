// SPDX-License-Identifier: Apache-2.0
// What a value of CUDA_VISIBLE_DEVICES would have shown to the process of a context.
#pragma once

#include <optional>
#include <string>

#include "rules/stray_context.h"

namespace corral::rules {

// Whether a process that was started with this value would see the context's device; nullopt when
// the value's numbers cannot be told from here. The driver's rules: the list ends at the first
// entry that names no device; a UUID may be given by its beginning.
std::optional<bool> would_show(const Stray& stray, const std::string& value);

}  // namespace corral::rules

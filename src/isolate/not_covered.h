// SPDX-License-Identifier: Apache-2.0
// The ways out that a plan leaves open here, in words: what the verdict must not promise.
#pragma once

#include "isolate/plan.h"

namespace corral::isolate {

// Adds to plan.not_covered; the layers and refused nodes must be in the plan already.
void name_what_is_not_covered(Plan& plan, const Request& request, const Host& host);

}  // namespace corral::isolate

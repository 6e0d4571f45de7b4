// SPDX-License-Identifier: Apache-2.0
// Proof instead of belief: in the restricted child, before exec, every node is tried.
#pragma once

#include <span>
#include <string>

#include "base/error.h"
#include "isolate/plan.h"

namespace corral::isolate {

// Opens each refused node (give those that are held: is_held) for reading, for writing and in mode
// 3: each must fail with EACCES or EPERM. Any other outcome is not a refusal: ENXIO means that the
// driver was reached. A node that the plan knows as missing may also be absent. Then opens each
// allowed node: it must not fail with EACCES or EPERM.
Result<void> self_test(std::span<const RefusedNode> refused, std::span<const AllowedNode> allowed);

// Whether `path` refuses all three ways of opening now. Opens it for real when it does not.
bool refuses_every_open(const std::string& path);

}  // namespace corral::isolate

// SPDX-License-Identifier: Apache-2.0
// Proof instead of belief: in the restricted child, before exec, every node is tried.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "isolate/plan.h"

namespace corral::isolate {

// Opens each refused node (give those that are held: is_held) for reading, for writing and in mode
// 3: each must fail with EACCES or EPERM. Any other outcome is not a refusal: ENXIO means that the
// driver was reached. Two things are no device and therefore good as well: a node that the plan
// knows as missing may be absent, and what opens may be /dev/null, laid over the node. Then opens
// each allowed node: it must not fail with EACCES or EPERM.
Result<void> self_test(std::span<const RefusedNode> refused, std::span<const AllowedNode> allowed);

// A node whose name something was laid over, held by a descriptor that reads and writes nothing, so
// that the layers below can be tried as well.
struct UncoveredNode {
  Fd handle;  // O_PATH
  RefusedNode node;
};

// Parent or child, before the mounts change. Nodes that are not there, or closed by their folder,
// are left out.
std::vector<UncoveredNode> keep_uncovered(std::span<const RefusedNode> refused);

// Opens each again through its descriptor: only a refusal is good.
Result<void> self_test_uncovered(std::span<const UncoveredNode> nodes);

// Whether `path` refuses all three ways of opening now. Opens it for real when it does not.
bool refuses_every_open(const std::string& path);

}  // namespace corral::isolate

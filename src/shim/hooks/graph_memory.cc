// SPDX-License-Identifier: Apache-2.0
// Graph nodes that allocate. The memory comes at the launch and stays with the graph's own pool, so
// the node is an event and not counted as memory.
#include "shim/core.h"
#include "shim/hook.h"

using namespace corral::shim;

namespace {

void added(const char* function, const CUDA_MEM_ALLOC_NODE_PARAMS& parameters) {
  if (parameters.pool.location.type != kLocationDevice) return;
  graph_node_added(function, parameters.bytes, parameters.pool.location.id);
}

}  // namespace

CORRAL_HOOK(cuGraphAddMemAllocNode, "cuGraphAddMemAllocNode", 11040);
CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  const auto original = CORRAL_ORIGINAL(cuGraphAddMemAllocNode);
  if (original == nullptr) return kNotFound;
  const CUresult result = original(node, graph, dependencies, count, parameters);
  if (result == kSuccess) added("cuGraphAddMemAllocNode", *parameters);
  return result;
}

CORRAL_HOOK(cuGraphAddNode, "cuGraphAddNode", 12020);
CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                        size_t count, CUgraphNodeParams* parameters) {
  const auto original = CORRAL_ORIGINAL(cuGraphAddNode);
  if (original == nullptr) return kNotFound;
  const CUresult result = original(node, graph, dependencies, count, parameters);
  if (result == kSuccess && parameters->type == kNodeMemAlloc) {
    added("cuGraphAddNode", parameters->alloc);
  }
  return result;
}

CORRAL_HOOK(cuGraphAddNode_v2, "cuGraphAddNode", 12030);
CUresult cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                           const void* edges, size_t count, CUgraphNodeParams* parameters) {
  const auto original = CORRAL_ORIGINAL(cuGraphAddNode_v2);
  if (original == nullptr) return kNotFound;
  const CUresult result = original(node, graph, dependencies, edges, count, parameters);
  if (result == kSuccess && parameters->type == kNodeMemAlloc) {
    added("cuGraphAddNode_v2", parameters->alloc);
  }
  return result;
}

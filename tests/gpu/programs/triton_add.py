# SPDX-License-Identifier: Apache-2.0
"""Triton: a masked vector sum."""

import torch
import triton
import triton.language as tl


@triton.jit
def add(left, right, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(out + at, tl.load(left + at, mask=inside) + tl.load(right + at, mask=inside), mask=inside)


left = torch.arange(1000, device="cuda")
out = torch.empty_like(left)
add[(triton.cdiv(1000, 256),)](left, left, out, 1000, BLOCK=256)
print(int(out.sum()))

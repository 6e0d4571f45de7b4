# SPDX-License-Identifier: Apache-2.0
"""One way to use memory with torch: `torch_memory.py touch|fragment|too-much|leak|saw [SECONDS]`."""
import sys
import time

import torch

MIB = 1 << 20
way = sys.argv[1]
seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 0


def block(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


def touch():
    block(1)


def fragment():
    """Most of the card in freed blocks, then one that fits into none of them."""
    total_mib = torch.cuda.mem_get_info()[1] // MIB
    blocks = [block(1024) for _ in range(int(total_mib * 0.85) // 1024)]
    del blocks
    kept = block(int(total_mib * 0.5))
    assert kept.numel()


def too_much():
    kept = block(4096)
    block(int(torch.cuda.mem_get_info()[1] // MIB))
    assert kept.numel()


def leak():
    kept = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        kept.append(block(32))
        time.sleep(0.25)


def saw():
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        kept = []
        for _ in range(20):
            kept.append(block(64))
            time.sleep(0.1)
        del kept
        torch.cuda.empty_cache()


{"touch": touch, "fragment": fragment, "too-much": too_much, "leak": leak, "saw": saw}[way]()
print("retries", torch.cuda.memory_stats().get("num_alloc_retries", "-"), flush=True)

# SPDX-License-Identifier: Apache-2.0
"""A client of an MPS server: copies both ways, a product, and an allocation of so many GiB.

Prints one JSON line once it works, and stays so many seconds.
"""

import argparse
import json
import sys
import time

import torch

GIB = 1 << 30


def allocates(gib: float) -> bool:
    try:
        torch.empty(int(gib * GIB), dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return False
    finally:
        torch.cuda.empty_cache()
    return True


def products_per_s(seconds: float) -> float:
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    for _ in range(5):
        a @ a
    torch.cuda.synchronize()
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for _ in range(20):
            a @ a
        torch.cuda.synchronize()
        count += 20
    return count / (time.perf_counter() - began)


def copies_well() -> bool:
    data = torch.arange(1 << 22, dtype=torch.int32)
    pinned = data.pin_memory()
    back = [x.to("cuda", non_blocking=True).add(1).cpu() for x in (data, pinned)]
    return all(torch.equal(x, data + 1) for x in back)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gib", type=float, default=4)
    parser.add_argument("--seconds", type=float, default=0, help="of timed products")
    parser.add_argument("--stay", type=float, default=0)
    arguments = parser.parse_args()
    properties = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info(0)
    said = {
        "devices": torch.cuda.device_count(),
        "multiprocessors": properties.multi_processor_count,
        "free_mib": free >> 20,
        "total_mib": total >> 20,
        "copies": copies_well(),
        "allocated": allocates(arguments.gib),
    }
    if arguments.seconds:
        said["products_per_s"] = products_per_s(arguments.seconds)
    print(json.dumps(said), flush=True)
    deadline = time.monotonic() + arguments.stay
    x = torch.ones(1, device="cuda")
    try:
        while time.monotonic() < deadline:
            x.add_(1).item()
            time.sleep(0.05)
    except RuntimeError as error:
        sys.exit(f"lost: {error}")


main()

# SPDX-License-Identifier: Apache-2.0
"""NCCL: every rank gives its number plus one; rank 0 prints the sum that all of them got."""

import os

import torch
from torch import distributed

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
distributed.init_process_group("nccl", device_id=torch.device("cuda", rank))
values = torch.full((1 << 22,), float(rank + 1), device="cuda")
distributed.all_reduce(values)
low, high = values.min().item(), values.max().item()
if low != high:
    raise SystemExit(f"rank {rank}: {low} and {high} in one sum")
if rank == 0:
    print(f"{distributed.get_world_size()} ranks, sum {low:g}")
distributed.destroy_process_group()

# SPDX-License-Identifier: Apache-2.0
# Situation: every rank names its GPU before the group is made; what NCCL maps of the other GPU is no context
# Intended: rank r on GPU r
# Strays to: nothing
# Finding: none
# With one GPU: ends with "invalid device ordinal"
# Adapted: RANKS = 2 -> RANKS = 1
# Fix: none needed
import os
import tempfile

import torch
from torch import distributed, multiprocessing
from _contexts import report

RANKS = 2


def train(rank, meeting):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    torch.cuda.set_device(rank)
    distributed.init_process_group(
        "nccl", init_method=f"file://{meeting}", rank=rank, world_size=RANKS, device_id=torch.device("cuda", rank)
    )
    gradient = torch.full((1 << 18,), 3.0, device="cuda")
    distributed.all_reduce(gradient, op=distributed.ReduceOp.AVG)
    distributed.barrier()
    report(result=float(gradient.mean()), role=f"rank {rank}")
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(train, args=(f"{folder}/meeting",), nprocs=RANKS)

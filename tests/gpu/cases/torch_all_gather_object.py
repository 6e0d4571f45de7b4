# SPDX-License-Identifier: Apache-2.0
# Situation: a gathered object holds a CUDA tensor: every rank rebuilds it on the GPU of its sender
# Intended: rank r on GPU r
# Strays to: GPU 0 (rank 1), GPU 1 (rank 0)
# Finding: stray.shared-tensor
# With one GPU: ends with "invalid device ordinal"
# Adapted: RANKS = 2 -> RANKS = 1
# Fix: gather tensors with all_gather, or call .cpu() on what goes into an object
import os
import tempfile

import torch
from torch import distributed, multiprocessing
from _contexts import report

RANKS = 2


def train(rank, meeting):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    loss = torch.ones(16, device=f"cuda:{rank}")
    gathered = [None] * RANKS
    distributed.all_gather_object(gathered, {"loss": loss})  # CULPRIT
    report(result=float(gathered[rank]["loss"].sum()), role=f"rank {rank}")
    distributed.barrier(device_ids=[rank])
    distributed.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(train, args=(f"{folder}/meeting",), nprocs=RANKS)

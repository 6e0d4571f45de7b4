# SPDX-License-Identifier: Apache-2.0
# Situation: a barrier before any rank has said which GPU is its own: rank 1 goes to GPU 0
# Intended: rank r on GPU r
# Strays to: GPU 0 (rank 1)
# Finding: stray.rank-without-set-device
# With one GPU: ends with "invalid device ordinal"
# Adapted: RANKS = 2 -> RANKS = 1
# Fix: torch.cuda.set_device(rank) first, or init_process_group(device_id=...), or barrier(device_ids=[rank])
import os
import tempfile

import torch
from torch import distributed, multiprocessing
from _contexts import report

RANKS = 2


def train(rank, meeting):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    distributed.init_process_group("nccl", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    weights = torch.ones(16, device=f"cuda:{rank}")
    distributed.barrier()  # CULPRIT
    report(result=float(weights.sum()), role=f"rank {rank}")
    distributed.barrier(device_ids=[rank])
    distributed.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(train, args=(f"{folder}/meeting",), nprocs=RANKS)

# SPDX-License-Identifier: Apache-2.0
# Situation: a worker meant for GPU 1 takes a CUDA tensor from a queue, and opens the GPU of its sender
# Intended: rank r on GPU r
# Strays to: GPU 0 (rank 1)
# Finding: stray.shared-tensor
# With one GPU: ends with "invalid device ordinal"
# Adapted: cuda:1 -> cuda:0
# Fix: send .cpu() tensors, or let the worker live on the GPU of the sender
import os

import torch
from torch import multiprocessing
from _contexts import report


def work(queue, done):
    os.environ["LOCAL_RANK"] = "1"
    weights = torch.ones(16, device="cuda:1")
    batch = queue.get()  # CULPRIT
    report(result=float(weights.sum()) + float(batch.sum()), role="rank 1")
    del batch
    done.set()


if __name__ == "__main__":
    os.environ["LOCAL_RANK"] = "0"
    processes = multiprocessing.get_context("spawn")
    queue, done = processes.Queue(), processes.Event()
    worker = processes.Process(target=work, args=(queue, done))
    worker.start()
    queue.put(torch.ones(16, device="cuda:0"))
    while worker.is_alive() and not done.wait(0.2):  # the tensor must live until it was read
        pass
    worker.join()
    report(role="rank 0")
    raise SystemExit(worker.exitcode)

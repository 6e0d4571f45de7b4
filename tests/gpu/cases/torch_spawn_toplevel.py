# SPDX-License-Identifier: Apache-2.0
# Situation: spawn runs the module again in every child, and so its top-level line, before the child has a device
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.spawned-module, stray.default-device
# With one GPU: ends with "invalid device ordinal"
# Adapted: worker_gpu = 1 -> worker_gpu = 0
# Fix: move the line below if __name__ == "__main__", or into the function that needs it
import torch
from torch import multiprocessing
from _contexts import report

scale = torch.ones(1, device="cuda")  # CULPRIT
worker_gpu = 1


def work():
    torch.cuda.set_device(worker_gpu)
    report(result=float(torch.ones(16, device="cuda").sum()), role="worker")


if __name__ == "__main__":
    worker = multiprocessing.get_context("spawn").Process(target=work)
    worker.start()
    worker.join()
    report(role="rank 0")
    raise SystemExit(worker.exitcode)

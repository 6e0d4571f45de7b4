# SPDX-License-Identifier: Apache-2.0
# Situation: the threads of a pool begin on device 0, whatever the main thread has chosen
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.thread-device-zero
# With one GPU: ends with "invalid device ordinal"
# Adapted: set_device(1) -> set_device(0)
# Fix: ThreadPoolExecutor(initializer=torch.cuda.set_device, initargs=(1,)), or name the device in the task
from concurrent.futures import ThreadPoolExecutor

import torch
from _contexts import report

torch.cuda.set_device(1)
weights = torch.ones(256, device="cuda")


def embed(number):
    return torch.full((16,), float(number), device="cuda").cpu()  # CULPRIT


with ThreadPoolExecutor(max_workers=1) as pool:
    parts = list(pool.map(embed, range(2)))
report(result=float(weights.sum()) + float(sum(part.sum() for part in parts)))

# SPDX-License-Identifier: Apache-2.0
# Situation: set_device() holds for the calling thread alone; a new thread starts on cuda:0
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.thread-device-zero
# With one GPU: ends with "invalid device ordinal"
# Adapted: set_device(1) -> set_device(0)
# Fix: torch.cuda.set_device(1) at the head of the thread, or name the device
from concurrent.futures import ThreadPoolExecutor

import torch
from _contexts import report

torch.cuda.set_device(1)
model = torch.ones(32, device="cuda")


def answer():
    return torch.full((32,), 0.5, device="cuda").sum().item()  # CULPRIT


with ThreadPoolExecutor(1) as server:
    total = server.submit(answer).result()
report(result=[total, float(model.sum())])

# SPDX-License-Identifier: Apache-2.0
# Situation: host memory is pinned before any device was chosen: the pin belongs to a context on cuda:0
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.pinned-memory
# With one GPU: ends with "invalid device ordinal"
# Adapted: cuda:1 -> cuda:0
# Fix: torch.cuda.set_device(1) before the pin
import torch
from _contexts import report

staging = torch.ones(4096).pin_memory()  # CULPRIT
arrived = staging.to("cuda:1", non_blocking=True)
torch.cuda.synchronize("cuda:1")
report(result=float(arrived.sum()))

# SPDX-License-Identifier: Apache-2.0
# Situation: looking for the GPU with most free memory makes a context on every one that is looked at
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.device-query
# With one GPU: works
# Fix: ask NVML or nvidia-smi, or choose before Python starts
import torch
from _contexts import report

free = {}
for number in range(torch.cuda.device_count()):
    free[number], _ = torch.cuda.mem_get_info(number)  # CULPRIT
chosen = max(free)  # the last one: max(free, key=free.get) in earnest, fixed here so that runs agree
report(result=float(torch.ones(8, device=f"cuda:{chosen}").sum()))

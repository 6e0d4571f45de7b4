# SPDX-License-Identifier: Apache-2.0
# Situation: a checkpoint keeps the state of CUDA's random numbers, of the current device
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.default-device
# With one GPU: ends with "invalid device ordinal"
# Adapted: cuda:1 -> cuda:0
# Fix: torch.cuda.get_rng_state("cuda:1"), or torch.cuda.set_device(1) once
import torch
from _contexts import report

work = torch.ones(256, device="cuda:1")
state = torch.cuda.get_rng_state()
numbers = torch.rand(256, device="cuda")  # CULPRIT
report(result=[float(work.sum()), len(state), len(numbers)])

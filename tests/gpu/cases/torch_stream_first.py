# SPDX-License-Identifier: Apache-2.0
# Situation: a side stream is made before the device is chosen
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.stream-event
# With one GPU: ends with "invalid device ordinal"
# Adapted: cuda:1 -> cuda:0
# Fix: torch.cuda.Stream(device="cuda:1"), or torch.cuda.set_device(1) first
import torch
from _contexts import report

copies = torch.cuda.Stream()  # CULPRIT
work = torch.ones(256, device="cuda:1")
report(result=float(work.sum()))

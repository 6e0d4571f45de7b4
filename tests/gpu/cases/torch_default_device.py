# SPDX-License-Identifier: Apache-2.0
# Situation: the default device has no number, and so means GPU 0
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.default-device
# With one GPU: ends with "invalid device ordinal"
# Adapted: cuda:1 -> cuda:0
# Fix: torch.set_default_device("cuda:1")
import torch
from _contexts import report

torch.set_default_device("cuda")
positions = torch.arange(256)  # CULPRIT
work = torch.ones(256, device="cuda:1")
report(result=float(work.sum()))

# SPDX-License-Identifier: Apache-2.0
# Situation: torch.cuda.synchronize() without a device waits for cuda:0, and makes its context for that
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.sync-default-device
# With one GPU: ends with "invalid device ordinal"
# Adapted: cuda:1 -> cuda:0
# Fix: torch.cuda.synchronize("cuda:1"), or torch.cuda.set_device(1) once
import torch
from _contexts import report

eye = torch.eye(256, device="cuda:1")
product = eye @ eye
torch.cuda.synchronize()  # CULPRIT
report(result=float(product.sum()))

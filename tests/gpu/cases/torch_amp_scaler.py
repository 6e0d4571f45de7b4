# SPDX-License-Identifier: Apache-2.0
# Situation: GradScaler() keeps its scale on the current device
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.default-device
# With one GPU: ends with "invalid device ordinal"
# Adapted: cuda:1 -> cuda:0
# Fix: torch.cuda.set_device(1) before the first step
import torch
from _contexts import report

weights = torch.ones(16, device="cuda:1", requires_grad=True)
loss = (weights * 2).sum()
scaled = torch.amp.GradScaler("cuda").scale(loss.detach().cpu().to("cuda"))  # CULPRIT
report(result=float(scaled.cpu()) > 0)

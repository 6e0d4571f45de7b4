# SPDX-License-Identifier: Apache-2.0
# Situation: the model is on cuda:1, and a batch is sent with .cuda(), which means cuda:0
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.default-device
# With one GPU: ends with "invalid device ordinal"
# Adapted: cuda:1 -> cuda:0
# Fix: .to("cuda:1"), or torch.cuda.set_device(1) first
import torch
from _contexts import report

model = torch.full((4, 4), 2.0, device="cuda:1")
batch = torch.ones(1, 4).cuda()  # CULPRIT
report(result=float((batch.to(model.device) @ model).sum()))

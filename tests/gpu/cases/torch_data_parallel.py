# SPDX-License-Identifier: Apache-2.0
# Situation: DataParallel without device_ids takes every GPU that it sees
# Intended: GPU 0
# Strays to: GPU 1
# Finding: stray.data-parallel
# With one GPU: works
# Fix: show the job the GPUs that it may use, or DataParallel(model, device_ids=[0])
import torch
from _contexts import report

model = torch.nn.DataParallel(torch.nn.Linear(64, 64).to("cuda:0"))
output = model(torch.ones(8, 64, device="cuda:0"))  # CULPRIT
report(result=list(output.shape))

# SPDX-License-Identifier: Apache-2.0
# Situation: masked from outside, GPU 1 calls itself cuda:0: a log that says cuda:0 is no stray. The script starts
#   itself again with the mask
# Intended: GPU 1
# Strays to: nothing
# Finding: none
# With one GPU: ends with "No CUDA GPUs are available"
# Adapted: MASK = "1" -> MASK = "0"
# Fix: none needed
import os
import sys

MASK = "1"
if os.environ.get("CASE_MASKED") is None:
    os.environ.update(CASE_MASKED="yes", CUDA_VISIBLE_DEVICES=MASK, CUDA_DEVICE_ORDER="PCI_BUS_ID")
    os.execv(sys.executable, [sys.executable, *sys.argv])

import torch
from _contexts import report

work = torch.arange(100, device="cuda:0")
torch.cuda.synchronize()
torch.cuda.empty_cache()
report(result=int(work.sum()))

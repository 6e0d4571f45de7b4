# SPDX-License-Identifier: Apache-2.0
# Situation: torch.cuda.empty_cache() with the work on cuda:1; long said to open GPU 0, and with torch 2.11 it does
#   not: a control
# Intended: GPU 1
# Strays to: nothing
# Finding: none
# With one GPU: ends with "invalid device ordinal"
# Adapted: cuda:1 -> cuda:0
# Fix: none needed
import torch
from _contexts import report

block = torch.ones(512, 512, device="cuda:1")
total = float(block.sum())
del block
torch.cuda.empty_cache()
report(result=total)

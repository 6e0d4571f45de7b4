# SPDX-License-Identifier: Apache-2.0
# Situation: is_available() starts the driver, and CUDA_VISIBLE_DEVICES is set after it: too late
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.late-env
# With one GPU: works
# Fix: export the variable before Python starts, or set it before the first CUDA question
import os

import torch
from _contexts import report

if torch.cuda.is_available():
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"  # CAUSE
work = torch.arange(10, device="cuda")  # CULPRIT
report(result=int(work.sum()))

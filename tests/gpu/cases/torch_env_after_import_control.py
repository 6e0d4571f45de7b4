# SPDX-License-Identifier: Apache-2.0
# Situation: CUDA_VISIBLE_DEVICES is set after `import torch` and before any call that starts the driver: in time
# Intended: GPU 1
# Strays to: nothing
# Finding: none
# With one GPU: ends with "No CUDA GPUs are available"
# Adapted: = "1" -> = "0"
# Fix: none needed; exporting it before Python starts is safer
import os

import torch
from _contexts import report

os.environ["CUDA_VISIBLE_DEVICES"] = "1"
report(result=float(torch.linspace(0, 1, 3, device="cuda").sum()))

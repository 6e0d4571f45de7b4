# SPDX-License-Identifier: Apache-2.0
# Situation: asking how many GPUs there are makes the driver read CUDA_VISIBLE_DEVICES; setting it after that is
#   without effect
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.late-env
# With one GPU: works
# Fix: set the variable before the count, or count through NVML
import os

import cupy
from _contexts import report

last = cupy.cuda.runtime.getDeviceCount() - 1
os.environ["CUDA_VISIBLE_DEVICES"] = str(last)  # CAUSE
work = cupy.full(512, 2.0)  # CULPRIT
report(result=float(work.get().sum()))

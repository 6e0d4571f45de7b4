# SPDX-License-Identifier: Apache-2.0
# Situation: Numba puts an array on device 0 before the device is chosen
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.default-device
# With one GPU: ends with "out of range"
# Adapted: gpus[1] -> gpus[0]
# Fix: numba.cuda.select_device(1) first
import numpy
from numba import cuda
from _contexts import report

rows = numpy.arange(50)
constant = cuda.to_device(rows)  # CULPRIT
with cuda.gpus[1]:
    total = int(cuda.to_device(rows).copy_to_host().sum())
report(result=total)

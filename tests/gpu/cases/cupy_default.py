# SPDX-License-Identifier: Apache-2.0
# Situation: the first CuPy array comes before the device is chosen
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.default-device
# With one GPU: ends with "invalid device ordinal"
# Adapted: Device(1) -> Device(0)
# Fix: cupy.cuda.Device(1).use() before the first array
import cupy
from _contexts import report

template = cupy.arange(256)  # CULPRIT
cupy.cuda.Device(1).use()
work = cupy.arange(256)
report(result=int(work.get().sum()))

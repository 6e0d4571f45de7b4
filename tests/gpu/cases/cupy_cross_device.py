# SPDX-License-Identifier: Apache-2.0
# Situation: an array of GPU 1 is used outside of its block: CuPy computes on device 0
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.default-device
# With one GPU: ends with "invalid device ordinal"
# Adapted: Device(1) -> Device(0)
# Fix: cupy.cuda.Device(1).use(), or keep the operation inside of the block
import cupy
from _contexts import report

device = cupy.cuda.Device(1)
device.use()
work = cupy.arange(256)
with cupy.cuda.Device(0):
    total = (work + 1).get().sum()  # CULPRIT
report(result=int(total))

# SPDX-License-Identifier: Apache-2.0
# Situation: the end of a `with cupy.cuda.Device(1)` block sets device 0 again, which makes its context
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.restored-device
# With one GPU: ends with "invalid device ordinal"
# Adapted: Device(1) -> Device(0)
# Fix: cupy.cuda.Device(1).use() in place of the block
import cupy
from _contexts import report

with cupy.cuda.Device(1):  # CULPRIT
    total = int(cupy.arange(128).get().sum())
report(result=total)

# SPDX-License-Identifier: Apache-2.0
# Situation: pinned host memory is taken before the device is chosen
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.pinned-memory
# With one GPU: ends with "invalid device ordinal"
# Adapted: Device(1) -> Device(0)
# Fix: cupy.cuda.Device(1).use() before the first pinned array
import cupy
from _contexts import report

host = cupy.cuda.alloc_pinned_memory(1 << 20)  # CULPRIT
cupy.cuda.Device(1).use()
report(result=int(cupy.arange(256).get().sum()) + (host.size() > 0))

# SPDX-License-Identifier: Apache-2.0
# Situation: the freest GPU is looked for by asking CuPy about each one
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.device-query
# With one GPU: works
# Fix: ask NVML (pynvml), which makes no context
import cupy
from _contexts import report

free = []
for number in range(cupy.cuda.runtime.getDeviceCount()):
    with cupy.cuda.Device(number):
        free.append(cupy.cuda.runtime.memGetInfo()[0])  # CULPRIT
cupy.cuda.Device(len(free) - 1).use()
report(result=int(cupy.arange(256).get().sum()))

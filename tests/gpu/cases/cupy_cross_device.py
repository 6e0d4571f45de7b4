# SPDX-License-Identifier: Apache-2.0
# Situation: an array of GPU 1 is used in a block of device 0: the block opens that device
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.named-device
# With one GPU: ends with "invalid device ordinal"
# Adapted: Device(1) -> Device(0)
# Fix: leave the block away: the current device is the one that was chosen
import cupy
from _contexts import report

device = cupy.cuda.Device(1)
device.use()
work = cupy.arange(256)
with cupy.cuda.Device(0):  # CULPRIT
    total = (work + 1).get().sum()
report(result=int(total))

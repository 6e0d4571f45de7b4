# SPDX-License-Identifier: Apache-2.0
# Situation: starting the driver and counting its devices opens nodes, and makes no context
# Intended: none
# Strays to: nothing
# Finding: none
# With one GPU: works
# Fix: none needed
import ctypes

from _contexts import report

driver = ctypes.CDLL("libcuda.so.1")
started = driver.cuInit(0)
count = ctypes.c_int()
counted = driver.cuDeviceGetCount(ctypes.byref(count))
report(result=[started, counted, count.value > 0])

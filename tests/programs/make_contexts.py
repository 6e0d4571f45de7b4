# SPDX-License-Identifier: Apache-2.0
"""make_contexts.py [CALL:]DEVICE[*TIMES]…: makes contexts and prints each call's last result.

CALL is retain (the default), create, green or get (cuDeviceGet). Exits 1 when one failed. HOLD_S: seconds to stay.
"""
import ctypes
import os
import sys
import time

cu = ctypes.CDLL("libcuda.so.1")


def make(call, device):
    handle = ctypes.c_void_p()
    if call == "get":
        return cu.cuDeviceGet(ctypes.byref(handle), device)
    if call == "create":
        return cu.cuCtxCreate_v2(ctypes.byref(handle), 0, device)
    if call == "green":
        return cu.cuGreenCtxCreate(ctypes.byref(handle), None, device, 1)
    return cu.cuDevicePrimaryCtxRetain(ctypes.byref(handle), device)


def main():
    results = [cu.cuInit(0)]
    for word in sys.argv[1:]:
        call, _, rest = word.rpartition(":")
        device, _, times = rest.partition("*")
        for _ in range(int(times or 1)):
            result = make(call, int(device))
        results.append(result)
    print("results", *results[1:], flush=True)
    time.sleep(float(os.environ.get("HOLD_S", "0")))
    sys.exit(1 if any(results) else 0)


main()

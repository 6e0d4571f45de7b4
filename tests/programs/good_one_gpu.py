# SPDX-License-Identifier: Apache-2.0
"""Control: one context, on the GPU it means: the last visible one."""
import ctypes
import json
import os

cu = ctypes.CDLL("libcuda.so.1")


def check(code):
    if code != 0:
        raise RuntimeError(f"CUDA error {code}")


def main():
    count, context, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_ulonglong()
    check(cu.cuInit(0))
    check(cu.cuDeviceGetCount(ctypes.byref(count)))
    device = count.value - 1
    check(cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(cu.cuCtxSetCurrent(context))
    for _ in range(4):
        check(cu.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64 << 20)))
    check(cu.cuCtxSynchronize())
    print("REPRO " + json.dumps({"case": "good_one_gpu", "pid": os.getpid(), "contexts": [device]}), flush=True)


main()

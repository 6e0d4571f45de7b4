# SPDX-License-Identifier: Apache-2.0
"""Works on cuda:1, then synchronises the default device: a context on GPU 0, made in evaluate()."""
import ctypes
import json
import os

cu = ctypes.CDLL("libcuda.so.1")


def check(code):
    if code != 0:
        raise RuntimeError(f"CUDA error {code}")


def visible_devices():
    count = ctypes.c_int()
    check(cu.cuInit(0))
    check(cu.cuDeviceGetCount(ctypes.byref(count)))
    return count.value


def train(device):
    context, address = ctypes.c_void_p(), ctypes.c_ulonglong()
    check(cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(cu.cuCtxSetCurrent(context))
    check(cu.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64 << 20)))


def evaluate():
    context = ctypes.c_void_p()
    check(cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))  # the stray line
    check(cu.cuCtxSetCurrent(context))
    check(cu.cuCtxSynchronize())


def report():
    active = []
    for device in range(visible_devices()):
        flags, yes = ctypes.c_uint(), ctypes.c_int()
        check(cu.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(yes)))
        if yes.value:
            active.append(device)
    print("REPRO " + json.dumps({"case": "stray_default_device", "pid": os.getpid(), "contexts": active}), flush=True)


def main():
    train(1 if visible_devices() > 1 else 0)
    evaluate()
    report()


main()

# SPDX-License-Identifier: Apache-2.0
"""Works on cuda:1, then synchronises the default device: a context on GPU 0, made in evaluate().

HOLD_S: seconds to stay with the contexts.
"""
import ctypes
import json
import os
import time

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


def contexts():
    """The GPUs with a primary context of this process, numbered in PCI bus order."""
    folder = os.environ.get("CORRAL_SIM", "") + "/proc/driver/nvidia/gpus"
    order = sorted(name.lower() for name in os.listdir(folder))
    count, found = ctypes.c_int(), []
    check(cu.cuDeviceGetCount(ctypes.byref(count)))
    for device in range(count.value):
        flags, active = ctypes.c_uint(), ctypes.c_int()
        bus_id = ctypes.create_string_buffer(32)
        check(cu.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active)))
        check(cu.cuDeviceGetPCIBusId(bus_id, 32, device))
        if active.value:
            found.append(order.index(bus_id.value.decode().lower()))
    return found


def main():
    train(1 if visible_devices() > 1 else 0)
    evaluate()
    print("REPRO " + json.dumps({"case": "stray_default_device", "pid": os.getpid(), "contexts": contexts()}), flush=True)
    time.sleep(float(os.environ.get("HOLD_S", "0")))


main()

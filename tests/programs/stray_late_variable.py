# SPDX-License-Identifier: Apache-2.0
"""Sets CUDA_VISIBLE_DEVICES after the driver has read it: the job runs on GPU 0."""
import ctypes
import json
import os

cu = ctypes.CDLL("libcuda.so.1")


def check(code):
    if code != 0:
        raise RuntimeError(f"CUDA error {code}")


def is_available():
    return cu.cuInit(0) == 0  # here the driver reads the variable, once


def choose_gpu():
    if not is_available():
        raise SystemExit("no GPU")
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"  # too late


def train():
    context, address = ctypes.c_void_p(), ctypes.c_ulonglong()
    check(cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))  # "the" GPU: number 0 of all
    check(cu.cuCtxSetCurrent(context))
    check(cu.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64 << 20)))


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


choose_gpu()
train()
print("REPRO " + json.dumps({"case": "stray_late_variable", "pid": os.getpid(), "contexts": contexts()}), flush=True)

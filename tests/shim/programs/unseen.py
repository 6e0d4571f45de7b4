# SPDX-License-Identifier: Apache-2.0
"""`unseen.py STEP…`: contexts by a way that no exported function is, between calls that are hooked."""
import ctypes
import os
import sys

cuda = ctypes.CDLL("libcuda.so.1")


class PrivateTable(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_size_t), ("activate_primary", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int))]


table = ctypes.POINTER(PrivateTable)()
assert cuda.cuGetExportTable(ctypes.byref(table), b"corral-sim-table") == 0
context = ctypes.c_void_p()
memory = ctypes.c_uint64()


def check(code):
    assert code == 0, code


def allocate(count):
    for _ in range(count):
        check(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_uint64(512)))
        check(cuda.cuMemFree_v2(memory))


STEPS = {
    "init": lambda: check(cuda.cuInit(0)),
    "unseen0": lambda: check(table.contents.activate_primary(0)),
    "unseen1": lambda: check(table.contents.activate_primary(1)),
    "create0": lambda: check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)),
    "create1": lambda: check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 1)),
    "retain0": lambda: check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)),
    "retain1": lambda: check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1)),
    "reset1": lambda: check(cuda.cuDevicePrimaryCtxReset_v2(1)),
    "many": lambda: allocate(4100),
    "one": lambda: allocate(1),
    "quit": lambda: os._exit(0),
}
for step in sys.argv[1:]:
    STEPS[step]()

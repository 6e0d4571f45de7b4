# SPDX-License-Identifier: Apache-2.0
"""The driver and NVML as a test's job uses them, through ctypes; runs inside a simulated machine."""
import ctypes
import os
import time

cu = ctypes.CDLL("libcuda.so.1")
ml = ctypes.CDLL("libnvidia-ml.so.1")


def check(code):
    if code != 0:
        raise RuntimeError(f"code {code}")


def devices():
    """What cuInit says, and the bus addresses of the visible devices."""
    code = cu.cuInit(0)
    if code != 0:
        return [code, []]
    count = ctypes.c_int()
    check(cu.cuDeviceGetCount(ctypes.byref(count)))
    found = []
    for i in range(count.value):
        text = ctypes.create_string_buffer(32)
        check(cu.cuDeviceGetPCIBusId(text, 32, i))
        found.append(text.value.decode().lower())
    return [code, found]


def use(device):
    check(cu.cuInit(0))
    context = ctypes.c_void_p()
    check(cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(cu.cuCtxSetCurrent(context))


def allocate(mib):
    address = ctypes.c_ulonglong()
    code = cu.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mib << 20))
    return code, address.value


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]


def handle(index):
    device = ctypes.c_void_p()
    code = ml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
    return code, device


def number(function, device, *before):
    value = ctypes.c_uint()
    code = getattr(ml, function)(device, *before, ctypes.byref(value))
    return value.value if code == 0 else -code


def processes(device):
    count = ctypes.c_uint(64)
    infos = (Process * 64)()
    check(ml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), infos))
    return [{"pid": p.pid, "mib": p.used >> 20, "gi": p.gi, "ci": p.ci} for p in infos[:count.value]]


def gpus():
    """What NVML tells of each GPU that it gives a handle for; the error code of the others."""
    check(ml.nvmlInit_v2())
    count = ctypes.c_uint()
    check(ml.nvmlDeviceGetCount_v2(ctypes.byref(count)))
    found = []
    for i in range(count.value):
        code, device = handle(i)
        if code != 0:
            found.append({"error": code})
            continue
        memory = (ctypes.c_ulonglong * 3)()
        code = ml.nvmlDeviceGetMemoryInfo(device, memory)
        found.append({
            "error": code,
            "minor": number("nvmlDeviceGetMinorNumber", device),
            "used_mib": memory[2] >> 20,
            "power_mw": number("nvmlDeviceGetPowerUsage", device),
            "mhz": number("nvmlDeviceGetClockInfo", device, 1),
            "processes": processes(device),
        })
    return found


def wait_until(condition):
    """For what another process does; the test's own limit ends a wait in vain."""
    while not condition():
        time.sleep(0.005)


def start(code):
    """Forks a child that runs `code` in a fresh Python, and waits until it prints a line."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(write, 1)
        os.execlp("python3", "python3", "-B", "-c", "from client import *\n" + code)
    os.close(write)
    os.read(read, 1)
    return child

# SPDX-License-Identifier: Apache-2.0
"""Says on which GPUs this process has a live CUDA context. Not a case itself.

Every case ends with report(RESULT), which prints one line `CASE {json}`:
  contexts  the GPUs with an active primary context, numbered as nvidia-smi does (PCI bus order)
  devices   the minors of the /dev/nvidiaN files that the process holds open; open is not a context
  result    what the case computed, so that two runs can be compared
  role      "main", or the rank in a job of several
A case that dies on the way prints the line at its end all the same, with a null result. Asking the
driver for the state of a primary context does not make one.
"""

import atexit
import ctypes
import json
import os
import pathlib

# A simulated machine keeps these below a folder of its own.
_ROOT = pathlib.Path(os.environ.get("CORRAL_SIM", "/"))
_imported_by = os.getpid()
_reported = False


def _address(text):
    """Compares addresses of any width: 0000:06:00.0, 00000000:06:00.0."""
    domain, bus, rest = text.lower().split(":")
    return int(domain, 16), int(bus, 16), int(rest.partition(".")[0], 16)


def gpus_by_address():
    """The addresses of all GPUs of the machine in the order that nvidia-smi numbers them."""
    return sorted(_address(folder.name) for folder in (_ROOT / "proc/driver/nvidia/gpus").iterdir())


def live_contexts():
    """None where there is no driver; [] where the driver shows this process no GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    visible = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(visible)):
        return []
    numbers = gpus_by_address()
    live = []
    for ordinal in range(visible.value):
        device, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
        bus = ctypes.create_string_buffer(32)
        driver.cuDeviceGet(ctypes.byref(device), ordinal)
        driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
        driver.cuDeviceGetPCIBusId(bus, len(bus), device)
        if active.value:
            live.append(numbers.index(_address(bus.value.decode())))
    return sorted(live)


def open_devices():
    minors = set()
    prefix = str(_ROOT / "dev/nvidia")
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue  # the descriptor of this very listing
        minor = target.removeprefix(prefix)
        if minor != target and minor.isdigit():
            minors.add(int(minor))
    return sorted(minors)


def report(result=None, role="main"):
    global _reported
    _reported = True
    line = {"role": role, "pid": os.getpid(), "contexts": live_contexts(), "devices": open_devices(), "result": result}
    print("CASE " + json.dumps(line), flush=True)


@atexit.register
def _report_the_end():
    if not _reported and os.getpid() == _imported_by:
        report()

# SPDX-License-Identifier: Apache-2.0
"""NVML through ctypes: what the drivers measure by themselves, with no part of Corral in between.

Only calls that cost microseconds are made in the loop: memory, power and SM clock.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import pathlib
import statistics
import threading
import time

MIB = 1 << 20
SM_CLOCK = 1  # NVML_CLOCK_SM


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Process(ctypes.Structure):  # nvmlProcessInfo_t of the _v3 call
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class _Pci(ctypes.Structure):  # nvmlPciInfo_t
    _fields_ = [
        ("legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("ids", ctypes.c_uint),
        ("subsystem", ctypes.c_uint),
        ("address", ctypes.c_char * 32),
    ]


@dataclasses.dataclass
class Gpu:
    index: int
    uuid: str
    name: str
    pci: str
    minor: int

    def node(self) -> str:
        """A simulated machine keeps its nodes below a folder of its own."""
        return str(pathlib.Path(os.environ.get("CORRAL_SIM", "/"), f"dev/nvidia{self.minor}"))


@dataclasses.dataclass
class Sample:
    time_s: float  # time.monotonic(), the same clock in every process
    memory_mib: float
    power_w: float | None
    sm_mhz: int | None


class Nvml:
    def __init__(self) -> None:
        try:
            self._lib = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise SystemExit(f"no NVML: {error}; these tests need NVIDIA GPUs and their driver") from None
        if (code := self._lib.nvmlInit_v2()) != 0:
            raise SystemExit(f"nvmlInit_v2 failed with {code}; these tests need NVIDIA GPUs and their driver")
        self.gpus: list[Gpu] = []
        self._handles: list[ctypes.c_void_p] = []
        count = ctypes.c_uint()
        self._must("nvmlDeviceGetCount_v2", ctypes.byref(count))
        for index in range(count.value):
            handle = ctypes.c_void_p()
            self._must("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
            self._handles.append(handle)
            self.gpus.append(self._describe(index, handle))

    def _must(self, name: str, *arguments) -> None:
        if (code := getattr(self._lib, name)(*arguments)) != 0:
            raise SystemExit(f"{name} failed with {code}")

    def _text(self, name: str, *handle) -> str:
        text = ctypes.create_string_buffer(96)
        self._must(name, *handle, text, len(text))
        return text.value.decode()

    def _describe(self, index: int, handle: ctypes.c_void_p) -> Gpu:
        pci, minor = _Pci(), ctypes.c_uint()
        self._must("nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(pci))
        self._must("nvmlDeviceGetMinorNumber", handle, ctypes.byref(minor))
        return Gpu(
            index,
            self._text("nvmlDeviceGetUUID", handle),
            self._text("nvmlDeviceGetName", handle),
            f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0",
            minor.value,
        )

    def driver_version(self) -> str:
        return self._text("nvmlSystemGetDriverVersion")

    def total_bytes(self, index: int) -> int:
        memory = _Memory()
        self._must("nvmlDeviceGetMemoryInfo", self._handles[index], ctypes.byref(memory))
        return memory.total

    def sample(self, index: int) -> Sample:
        handle, memory = self._handles[index], _Memory()
        self._must("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
        power, clock = ctypes.c_uint(), ctypes.c_uint()
        has_power = self._lib.nvmlDeviceGetPowerUsage(handle, ctypes.byref(power)) == 0
        has_clock = self._lib.nvmlDeviceGetClockInfo(handle, SM_CLOCK, ctypes.byref(clock)) == 0
        return Sample(
            time.monotonic(),
            memory.used / MIB,
            power.value / 1000 if has_power else None,
            clock.value if has_clock else None,
        )

    def compute_pids(self, index: int) -> set[int]:
        count = ctypes.c_uint(64)
        list_ = (_Process * count.value)()
        self._must("nvmlDeviceGetComputeRunningProcesses_v3", self._handles[index], ctypes.byref(count), list_)
        return {list_[i].pid for i in range(count.value)}


def two_gpus() -> Nvml:
    """NVML on a machine with at least two GPUs; on any other the program ends and says so."""
    opened = Nvml()
    if len(opened.gpus) < 2:
        raise SystemExit(f"two GPUs are needed, this machine has {len(opened.gpus)}")
    return opened


class Watch:
    """Samples some GPUs from a thread while a block runs."""

    def __init__(self, nvml: Nvml, indices: list[int], interval_s: float = 0.1) -> None:
        self._nvml = nvml
        self._interval_s = interval_s
        self._stop = threading.Event()
        self.samples: dict[int, list[Sample]] = {index: [] for index in indices}
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def _loop(self) -> None:
        while True:
            for index, samples in self.samples.items():
                samples.append(self._nvml.sample(index))
            if self._stop.wait(self._interval_s):
                return

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        self._thread.join(5)


def swing_mib(samples: list[Sample]) -> float:
    memory = [sample.memory_mib for sample in samples]
    return max(memory) - min(memory)


def mean(values) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def settle(nvml: Nvml, index: int, *, idle_w: float | None, limit_s: float) -> float | None:
    """Waits until a GPU draws idle power again and returns it, in watts.

    With `idle_w` that is within 1.5 W of it; without, when two seconds bring it down by less than
    0.5 W. After `limit_s` it returns what the GPU then draws: the power falls for seconds after the
    last context is gone.
    """
    deadline = time.monotonic() + limit_s
    before = None
    while True:
        window = []
        for _ in range(20):
            window.append(nvml.sample(index).power_w)
            time.sleep(0.1)
        now = mean(window)
        if now is None or time.monotonic() >= deadline:
            return now
        if idle_w is not None:
            if now <= idle_w + 1.5:
                return now
        elif before is not None and before - now < 0.5:
            return now
        before = now

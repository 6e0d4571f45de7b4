# SPDX-License-Identifier: Apache-2.0
"""What a context event costs with full stacks: Python frames 30 deep, read directly (main thread), through the
kernel (another thread that gave the GIL away), and the main thread's for a thread without Python.
stack_cost.py BUILD [--python PATH] [--rounds N]; on a driver that does nothing. Microseconds a context made and
destroyed, with and without the shim; medians."""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

JOB = """
import ctypes, sys, threading, time
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
COUNT = 400
def measure():
    context = ctypes.c_void_p()
    place, create, destroy = ctypes.byref(context), cuda.cuCtxCreate_v2, cuda.cuCtxDestroy_v2
    times = []
    for _ in range(COUNT):
        begin = time.perf_counter_ns()
        create(place, 0, 0)
        times.append(time.perf_counter_ns() - begin)
        destroy(context)
    times.sort()
    print(times[COUNT // 2] / 1000)
def deep(depth, call):
    return deep(depth - 1, call) if depth else call()
deep(30, measure)
thread = threading.Thread(target=deep, args=(30, measure))
thread.start()
thread.join()
maker = ctypes.CDLL(sys.argv[1])
maker.cost_on_native_thread.restype = ctypes.c_double
print(deep(30, lambda: maker.cost_on_native_thread(COUNT)))
"""

parser = argparse.ArgumentParser()
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("--python", default=sys.executable)
parser.add_argument("--rounds", type=int, default=5)
options = parser.parse_args()
build = options.build.resolve()
names = ("main thread, direct", "thread without GIL", "no Python, main's")


def run(folder, trace):
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "CORRAL_TRACE_DIR": str(trace)}
    job = [options.python, "-c", JOB, str(build / "bench/hook/libnative_cost.so")]
    return [float(line) for line in subprocess.run(job, env=environment, capture_output=True, text=True,
                                                   check=True).stdout.split()]


with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
    base = pathlib.Path(place)
    shim, plain, trace = base / "shim", base / "plain", base / "trace"
    for folder in (shim, plain, trace):
        folder.mkdir()
    (shim / "libcuda.so.1").symlink_to(build / "lib/corral/libcuda.so.1")
    (shim / "libcorral-driver.so").symlink_to(build / "bench/hook/libnull_driver.so")
    (plain / "libcuda.so.1").symlink_to(build / "bench/hook/libnull_driver.so")
    results = {plain: [], shim: []}
    for _ in range(options.rounds):
        for folder in results:
            results[folder].append(run(folder, trace))
    print(f"{'us a context':22} {'without':>8} {'with':>8} {'added':>8}")
    for i, name in enumerate(names):
        without, with_shim = (statistics.median(r[i] for r in results[f]) for f in (plain, shim))
        print(f"{name:22} {without:8.1f} {with_shim:8.1f} {with_shim - without:8.1f}")

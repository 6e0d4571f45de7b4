# SPDX-License-Identifier: Apache-2.0
"""What the shim adds to a call: the same program with and without it, interleaved, medians.
hook_cost.py BUILD [--driver PATH] [--rounds N] [--pairs N] [--contexts N]; without --driver on a driver that does
nothing."""
import argparse
import os
import pathlib
import statistics
import subprocess
import tempfile

parser = argparse.ArgumentParser()
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("--driver", type=pathlib.Path)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--pairs", type=int, default=1000000)
parser.add_argument("--contexts", type=int, default=200)
options = parser.parse_args()
build = options.build.resolve()
driver = options.driver or build / "bench/hook/libnull_driver.so"


def run(folder, trace):
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "CORRAL_TRACE_DIR": str(trace)}
    text = subprocess.run([build / "bench/hook/hook_cost", str(options.pairs), str(options.contexts)],
                          env=environment, capture_output=True, text=True, check=True).stdout
    return {name: float(value) for name, value in (line.split() for line in text.splitlines())}


with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
    base = pathlib.Path(place)
    shim, plain, trace = base / "shim", base / "plain", base / "trace"
    for folder in (shim, plain, trace):
        folder.mkdir()
    (shim / "libcuda.so.1").symlink_to(build / "lib/corral/libcuda.so.1")
    (shim / "libcorral-driver.so").symlink_to(driver)
    (plain / "libcuda.so.1").symlink_to(driver)
    results = {plain: [], shim: []}
    for _ in range(options.rounds):
        for folder in results:
            results[folder].append(run(folder, trace))
    print(f"{'ns a call':24} {'without':>10} {'with':>10} {'added':>10}")
    for name in results[plain][0]:
        without, added = (statistics.median(r[name] for r in results[f]) for f in (plain, shim))
        print(f"{name:24} {without:10.1f} {added:10.1f} {added - without:10.1f}")

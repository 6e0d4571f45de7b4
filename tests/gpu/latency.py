#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `run --quiet-idle` does to single small launches after pauses, and to the power between them.

With two GPUs both arms run at the same time, one on each, and once more exchanged; with one they take
turns on it, A B B A.
"""

from __future__ import annotations

import argparse
import collections
import statistics
import subprocess
import sys
import tempfile

import nvml
import process
import results

ARMS = ("default", "quiet")
KINDS = ("empty launch", "launch with work", "4 KiB to the host")
# Pause in ms and how often; about 45 s in all, twice a round.
PLAN = ("0:100000", "1:800", "10:120", "100:30", "1000:5")


def build(folder: str) -> str:
    program = f"{folder}/launch_latency"
    source = process.PROGRAMS / "launch_latency.c"
    subprocess.run(["gcc", "-std=gnu17", "-O2", "-o", program, str(source), "-ldl"], check=True, timeout=60)
    return program


def start(program: str, gpu: nvml.Gpu, arm: str, plan: tuple[str, ...]) -> subprocess.Popen:
    options = ["--quiet-idle"] if arm == "quiet" else []
    argv = [str(process.corral_path()), "run", "-q", "--no-observe", "--gpus", str(gpu.index), *options, "--", program, *plan]
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=process.clean_environment())  # fmt: skip


def turns(gpus: list[nvml.Gpu]) -> list[list[tuple[str, nvml.Gpu]]]:
    """What runs at the same time, one turn after the other."""
    if len(gpus) == 1:
        return [[(arm, gpus[0])] for arm in (*ARMS, *ARMS[::-1])]
    return [list(zip(ARMS, pair, strict=True)) for pair in (gpus[:2], gpus[1::-1])]


def measure(part: results.Part, seen: nvml.Nvml, program: str, rounds: int):
    """times[arm][pause][kind] in µs, and each arm's power and clock while it ran."""
    times = {arm: collections.defaultdict(lambda: [[] for _ in KINDS]) for arm in ARMS}
    readings = {arm: collections.defaultdict(list) for arm in ARMS}
    for number in range(rounds):
        for turn in turns(seen.gpus):
            # One pause at a time, so that power and clock are those of that pause.
            for step in PLAN:
                if not part.has_time_for(25, f"round {number + 1}, pause {step}"):
                    return times, readings
                jobs = [(arm, gpu, start(program, gpu, arm, (step,))) for arm, gpu in turn]
                with nvml.Watch(seen, [gpu.index for _, gpu, _ in jobs]) as watch:
                    outputs = [job.communicate(timeout=60) for _, _, job in jobs]
                for (arm, gpu, job), (out, err) in zip(jobs, outputs, strict=True):
                    part.check(f"round {number + 1}, {arm} on GPU {gpu.index}, {step}: ended well",
                               job.returncode == 0, err[-300:])  # fmt: skip
                    for line in out.splitlines():
                        pause, *took = line.split()
                        for kind, value in enumerate(took):
                            times[arm][int(pause)][kind].append(float(value))
                    # The first second is the driver's start.
                    samples = watch.samples[gpu.index]
                    kept = [s for s in samples if s.time_s > samples[0].time_s + 1.5]
                    readings[arm][int(step.split(":")[0])] += [(s.power_w, s.sm_mhz) for s in kept]
    return times, readings


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def write(part: results.Part, times, readings) -> None:
    rows = []
    for pause in sorted(times["default"]):
        for kind, name in enumerate(KINDS):
            plain, quiet = (times[arm][pause][kind] for arm in ARMS)
            if not plain or not quiet:
                continue
            rows.append([f"{pause} ms", name, len(plain), statistics.median(plain), statistics.median(quiet),
                         quantile(plain, 0.99), quantile(quiet, 0.99),
                         f"{statistics.median(quiet) / statistics.median(plain):.2f}"])  # fmt: skip
    head = ["pause before", "what", "times", "p50 default µs", "p50 quiet µs", "p99 default µs", "p99 quiet µs", "ratio of p50"]
    part.section("## One launch after a pause\n\nFrom the call to its end. The work is a chain of 20,000 dependent "
                 "multiplications of one warp: its time is the clock's.\n\n" + results.table(head, rows))  # fmt: skip
    part.data["latency_us"] = rows
    power = []
    for pause in sorted(readings["default"]):
        row: list = [f"{pause} ms"]
        for arm in ARMS:
            watts = [w for w, _ in readings[arm][pause] if w is not None]
            clocks = [c for _, c in readings[arm][pause] if c is not None]
            row += [statistics.mean(watts) if watts else None, statistics.median(clocks) if clocks else None]
        power.append(row)
    head = ["pause", "default W", "default MHz", "quiet W", "quiet MHz"]
    part.section("## Power and SM clock meanwhile\n\nMean power and median clock from 1.5 s after the start of each "
                 "run on; where a run is shorter there is none.\n\n" + results.table(head, power))  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1, help="of two runs for each pause and arm")
    parser.add_argument("--limit-s", type=float, default=280)
    arguments = parser.parse_args()
    seen = nvml.Nvml()
    with (
        results.Part("latency", "What `--quiet-idle` costs latency-bound work", arguments.limit_s, seen) as part,
        tempfile.TemporaryDirectory(dir="/dev/shm") as folder,
    ):
        times, readings = measure(part, seen, build(folder), arguments.rounds)
        write(part, times, readings)
        part.does_not_show("another model of GPU, and a GPU whose other processes keep its clocks up")
    return part.exit_code()


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `corral run` adds to the start of a command, beside what starting NVML costs by itself.

All commands take turns, in another order each round, so that whatever else the machine does falls
on all of them alike.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import random
import select
import statistics
import subprocess
import sys
import tempfile
import time

import nvml
import process
import results

ONE_LIMIT_S = 20
BAR_OVER_NVML_MS = 15


def time_once(argv: list[str], env: dict[str, str]) -> tuple[float, float]:
    """Wall and CPU milliseconds of one run with no output; it must end with 0."""
    silent = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    began = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, env, file_actions=silent, setsid=True)
    try:
        pidfd = os.pidfd_open(pid)
        try:
            ready, _, _ = select.select([pidfd], [], [], ONE_LIMIT_S)
        finally:
            os.close(pidfd)
        ended = time.perf_counter()
    finally:
        if not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            process.end_session(pid)
        _, status, usage = os.wait4(pid, 0)
    if not ready or status != 0:
        raise RuntimeError(f"{' '.join(argv)}: {'wait status ' + str(status) if ready else 'ran into its limit'}")
    return (ended - began) * 1000, (usage.ru_utime + usage.ru_stime) * 1000


def compile_nvml_init(folder: str) -> str:
    program = os.path.join(folder, "nvml_init")
    source = process.PROGRAMS / "nvml_init.c"
    subprocess.run(["gcc", "-O2", "-o", program, str(source), "-ldl"], check=True, timeout=60)
    return program


def p90(values: list[float]) -> float:
    return statistics.quantiles(values, n=10, method="inclusive")[-1]


def measure(part: results.Part, arms: dict[str, list[str]], rounds: int) -> dict[str, list[tuple[float, float]]]:
    env = process.clean_environment()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
    order = list(arms)
    shuffle = random.Random(1)
    for name in order:  # once each beforehand, where errors can be read
        ended = process.run(arms[name], limit_s=ONE_LIMIT_S, env=env)
        silent = not ended.stdout and not ended.stderr
        detail = f"exit {ended.shell_code()}, output {(ended.stdout + ended.stderr)[-300:]!r}"
        if not part.check(f"{name}: ends with 0 and prints nothing", ended.code == 0 and silent, detail):
            if ended.code != 0:
                del arms[name], times[name]
    for _ in range(rounds):
        if part.left_s() < 15:
            break
        shuffle.shuffle(order)
        for name in order:
            if name in arms:
                times[name].append(time_once(arms[name], env))
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=80)
    parser.add_argument("--limit-s", type=float, default=120)
    arguments = parser.parse_args()
    gpus = nvml.Nvml()
    # Something must be refused: with one GPU that is the one.
    last = str(gpus.gpus[-1].index) if len(gpus.gpus) > 1 else "none"
    with results.Part("launch", "What starting a command costs", arguments.limit_s, gpus) as part, (
        tempfile.TemporaryDirectory()
    ) as folder:
        corral, true = str(process.corral_path()), "/bin/true"
        nvml_init = compile_nvml_init(folder)
        arms = {
            "true": [true],
            "nvmlInit": [nvml_init],
            "nvmlInit and handles": [nvml_init, "handles"],
            "corral run --gpus": [corral, "run", "--gpus", last, "-q", "--", true],
            "corral run --gpus --no-observe": [corral, "run", "--gpus", last, "--no-observe", "-q", "--", true],
            "corral run --gpus --enforce landlock": [
                corral, "run", "--gpus", last, "--enforce", "landlock", "-q", "--", true,
            ],
            "corral run --gpus --enforce mount": [
                corral, "run", "--gpus", last, "--enforce", "mount", "-q", "--", true,
            ],
            "corral run --gpus --tight": [corral, "run", "--gpus", last, "--tight", "-q", "--", true],
            "corral run": [corral, "run", "-q", "--", true],
        }  # fmt: skip
        times = measure(part, dict(arms), arguments.rounds)
        describe(part, arms, {name: values for name, values in times.items() if len(values) >= 2})
    return part.exit_code()


def shown(argv: list[str]) -> str:
    words = [pathlib.PurePath(argv[0]).name, *argv[1:]]
    return "`" + " ".join(words).replace("/bin/true", "true") + "`"


def describe(part: results.Part, arms: dict[str, list[str]], times: dict[str, list[tuple[float, float]]]) -> None:
    medians = {name: statistics.median(wall for wall, _ in values) for name, values in times.items()}
    rows = []
    for name, values in times.items():
        walls = [wall for wall, _ in values]
        rows.append(
            [
                shown(arms[name]),
                len(values),
                medians[name],
                p90(walls),
                min(walls),
                statistics.median(cpu for _, cpu in values),
                medians[name] - medians["true"] if "true" in medians else None,
                medians[name] - medians["nvmlInit"] if "nvmlInit" in medians else None,
            ]
        )
    head = ["command", "runs", "median ms", "p90", "least", "CPU ms, median", "over `true`", "over nvmlInit"]
    part.section("## Wall time\n\n" + results.table(head, rows))
    for name in ("corral run --gpus", "corral run"):
        if name in medians and "nvmlInit" in medians:
            over = medians[name] - medians["nvmlInit"]
            text = f"{over:.1f} ms"
            part.check(f"{name}: at most {BAR_OVER_NVML_MS} ms more than nvmlInit", over <= BAR_OVER_NVML_MS, text)
        else:
            part.check(f"{name}: was measured", False)
    part.data["wall_ms"] = {name: [round(wall, 3) for wall, _ in values] for name, values in times.items()}
    part.does_not_show("a first start with cold files: each command ran once before the rounds")
    part.does_not_show("CPU milliseconds count the command and what it waited for, not the kernel's work for others")


if __name__ == "__main__":
    sys.exit(main())

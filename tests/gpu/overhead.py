#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `corral trace` costs a job: ResNet-50, the start of torch, single calls of the driver; and whether
the profilers still work under it.

Speeds are compared side by side: two runs at the same time, one on each GPU, and once more with the GPUs
exchanged, so that neither the hour nor the card stands on one side only.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import nvml
import process
import results

LEAST_SPEED_RATIO = 0.998
MOST_ADDED_TO_A_PAIR_NS = 60
OTHER_S = 25  # what one ResNet-50 run takes beside the timed seconds
FIRST_TENSOR = "import torch; torch.ones(8, device='cuda').sum().item()"
SHIM = pathlib.Path("lib/corral/libcuda.so.1")


def traced(command: list[str], *options: str) -> list[str]:
    return [str(process.corral_path()), "trace", "-q", *options, "--", *command]


def speed(gpu: nvml.Gpu, seconds: float, under_trace: bool) -> float | None:
    command = [sys.executable, str(process.PROGRAMS / "resnet50.py"), "--seconds", str(seconds)]
    env = process.clean_environment(CUDA_VISIBLE_DEVICES=gpu.uuid)
    ended = process.run(traced(command) if under_trace else command, limit_s=seconds + 60, env=env)
    found = re.search(r"^iter/s (.+)$", ended.stdout, re.MULTILINE)
    return float(found[1]) if found and ended.code == 0 else None


def resnet(part: results.Part, gpus: list[nvml.Gpu], seconds: float, rounds: int) -> None:
    rows, ratios = [], []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for number in range(1, rounds + 1):
            if not part.has_time_for(2 * (seconds + OTHER_S), f"ResNet-50: round {number}"):
                break
            plain, under = [], []
            for first, second in (gpus, gpus[::-1]):
                runs = [pool.submit(speed, first, seconds, False), pool.submit(speed, second, seconds, True)]
                plain.append(runs[0].result())
                under.append(runs[1].result())
            if not part.check(f"ResNet-50: round {number} ran", None not in plain + under, f"{plain} {under}"):
                continue
            ratio = math.sqrt(under[0] / plain[0] * under[1] / plain[1])
            ratios.append(ratio)
            rows.append([number, plain[0], under[0], plain[1], under[1], f"{ratio:.4f}"])
    if not ratios:
        return
    middle = statistics.median(ratios)
    part.check(f"ResNet-50: speed ratio is at least {LEAST_SPEED_RATIO}", middle >= LEAST_SPEED_RATIO, f"{middle:.4f}")
    names = [f"GPU {gpu.index}" for gpu in gpus]
    head = ["round", f"plain, {names[0]}", f"traced, {names[1]}", f"plain, {names[1]}", f"traced, {names[0]}", "ratio"]
    text = f"iter/s, batch 128, bf16, {seconds:g} s timed a run. Ratio of traced over plain: **{middle:.4f}** (median; "
    text += f"least {min(ratios):.4f}, most {max(ratios):.4f})."
    part.section(f"## ResNet-50\n\n{text}\n\n" + results.table(head, rows))
    part.data["resnet"] = rows


def first_tensor(part: results.Part, pairs: int) -> None:
    walls: dict[str, list[float]] = {"plain": [], "traced": []}
    command = [sys.executable, "-c", FIRST_TENSOR]
    for pair in range(pairs):
        if not part.has_time_for(20, f"import torch: pair {pair + 1}"):
            break
        for arm in ("plain", "traced") if pair % 2 == 0 else ("traced", "plain"):
            ended = process.run(traced(command) if arm == "traced" else command, limit_s=60,
                                env=process.clean_environment())  # fmt: skip
            if part.check(f"import torch, {arm}, pair {pair + 1}: ended well and silent",
                          ended.code == 0 and not ended.stderr, " / ".join(ended.tail(2))):  # fmt: skip
                walls[arm].append(ended.wall_s)
    if not all(walls.values()):
        return
    medians = {arm: statistics.median(values) for arm, values in walls.items()}
    rows = [[arm, len(walls[arm]), medians[arm], min(walls[arm]), max(walls[arm])] for arm in walls]
    text = f"`{FIRST_TENSOR}`; whole command, so that Corral's own start and end are in it. Ratio of the medians: "
    text += f"**{medians['traced'] / medians['plain']:.3f}**."
    part.section(f"## import torch and the first tensor\n\n{text}\n\n"
                 + results.table(["", "runs", "median s", "least", "most"], rows))  # fmt: skip


def calls(part: results.Part, folder: pathlib.Path) -> None:
    """bench/hook on a driver that does nothing, then on the real one."""
    source = process.TREE / "bench/hook"
    build = folder / "build"
    (build / SHIM.parent).mkdir(parents=True)
    (build / "bench/hook").mkdir(parents=True)
    (build / SHIM).symlink_to(process.corral_path().parent / SHIM)
    compiler = shutil.which("gcc") or shutil.which("cc")
    if not part.check("a C compiler is there", compiler is not None):
        return
    for name, options in (("hook_cost", ["-ldl"]), ("null_driver", ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"])):
        output = "hook_cost" if name == "hook_cost" else "libnull_driver.so"
        argv = [compiler, "-O2", "-o", str(build / "bench/hook" / output), str(source / f"{name}.c"), *options]
        subprocess.run(argv, check=True, timeout=60)
    real = pathlib.Path(subprocess.run(
        "ldconfig -p | sed -n 's/.*=> //p' | grep '/libcuda.so.1$' | head -1", shell=True, capture_output=True,
        text=True, check=True).stdout.strip())  # fmt: skip
    tables = []
    for title, options in (
        ("a driver that does nothing", []),
        ("the real driver", ["--driver", str(real), "--pairs", "20000", "--contexts", "5", "--rounds", "2"]),
    ):
        argv = [sys.executable, str(source / "hook_cost.py"), str(build), *options]
        ended = process.run(argv, limit_s=120, env=process.clean_environment())
        if part.check(f"hook cost on {title}: measured", ended.code == 0, " / ".join(ended.tail(2))):
            tables.append(f"On {title}, ns a call:\n\n```\n{ended.stdout.rstrip()}\n```")
            if title.startswith("a driver"):
                added = float(re.search(r"^pair .* (\S+)$", ended.stdout, re.MULTILINE)[1])
                what = f"a pair of cuMemAlloc and cuMemFree pays at most {MOST_ADDED_TO_A_PAIR_NS} ns"
                part.check(what, added <= MOST_ADDED_TO_A_PAIR_NS, f"{added} ns")
    part.section("## Single calls\n\n`bench/hook`: the same program with and without the shim, medians.\n\n" + "\n\n".join(tables))


def profilers(part: results.Part, folder: pathlib.Path) -> None:
    rows = []
    torch_profile = [sys.executable, str(process.PROGRAMS / "torch_profile.py")]
    ncu = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    ncu_run = [ncu, "--launch-count", "1", "--target-processes", "all", sys.executable,
               str(process.PROGRAMS / "torch_train.py")]  # fmt: skip
    # ncu's own library takes the program's calls: there the process must be named instead.
    for name, command, proof, seen in (
        ("torch.profiler", torch_profile, r"^kernels 2097152$", True),
        ("ncu", ncu_run, r"==PROF== Profiling", False),
    ):
        if name == "ncu" and not os.access(ncu, os.X_OK):
            part.check("ncu is there", False, ncu)
            continue
        plain = process.run(command, limit_s=120, env=process.clean_environment())
        report = folder / f"{name}.json"
        under = process.run(traced(command, "--report", str(report)), limit_s=120, env=process.clean_environment())
        works = [bool(re.search(proof, ended.stdout, re.MULTILINE)) for ended in (plain, under)]
        try:
            said = json.loads(report.read_text())
        except (OSError, ValueError):
            said = {"contexts": [], "coverage": {"unobserved": []}}
        contexts = len(said["contexts"])
        unobserved = [process["why"] for process in said["coverage"]["unobserved"]]
        same = plain.code == under.code and works[0] == works[1]
        part.check(f"{name}: as without", same, f"exit {plain.code} and {under.code}, profile {works}")
        part.check(f"{name}: works at all", works[0], " / ".join(plain.tail(2)))
        if seen:
            part.check(f"{name}: the context is seen", contexts > 0, str(contexts))
        else:
            named = any("libcuda-injection.so" in why for why in unobserved)
            part.check(f"{name}: the process is named as not observed", named, "; ".join(unobserved))
        rows.append([name, plain.shell_code(), under.shell_code(), *works, contexts, "; ".join(unobserved)])
    head = ["profiler", "exit, plain", "exit, traced", "profile, plain", "profile, traced", "contexts seen", "not observed"]
    part.section("## Profilers at the same time\n\n" + results.table(head, rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="of ResNet-50, four runs each")
    parser.add_argument("--seconds", type=float, default=8, help="timed part of a ResNet-50 run")
    parser.add_argument("--pairs", type=int, default=5, help="of import torch")
    parser.add_argument("--limit-s", type=float, default=420)
    arguments = parser.parse_args()
    gpus = nvml.two_gpus()
    with (
        results.Part("overhead", "What `corral trace` costs", arguments.limit_s, gpus) as part,
        tempfile.TemporaryDirectory(dir="/dev/shm") as folder,
    ):
        calls(part, pathlib.Path(folder))
        profilers(part, pathlib.Path(folder))
        first_tensor(part, arguments.pairs)
        resnet(part, gpus.gpus[:2], arguments.seconds, arguments.rounds)
        part.does_not_show("a job of many small kernels, or one that makes contexts all the time")
        part.does_not_show("a difference in speed smaller than that between two rounds")
    return part.exit_code()


if __name__ == "__main__":
    raise SystemExit(main())

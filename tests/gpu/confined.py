# SPDX-License-Identifier: Apache-2.0
"""Runs a command under `corral run` and judges the report: was a refused GPU left alone?"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import tempfile

import nvml
import process

# What the report must say was in force: all of these layers, and nothing else but what may come along.
LAYERS = {
    "cgroup": ({"cgroup"}, set()),
    "landlock": ({"landlock"}, {"seccomp"}),
    "mount": ({"mount"}, set()),
    "tight": ({"cgroup", "landlock", "seccomp"}, set()),
}


def method_options(method: str) -> list[str]:
    if method == "tight":
        return ["--tight"]
    return [] if method == "auto" else ["--enforce", method]


@dataclasses.dataclass
class Confined:
    ended: process.Ended
    report: dict | None
    why_none: str = ""

    def gpu(self, index: int) -> dict | None:
        return next((gpu for gpu in (self.report or {}).get("gpus", []) if gpu["index"] == index), None)


def run(options: list[str], command: list[str], *, limit_s: float, env: dict[str, str], cwd=None, **more) -> Confined:
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        argv = [str(process.corral_path()), "run", *options, "--report", str(report), "--", *command]
        ended = process.run(argv, limit_s=limit_s, env=env, cwd=cwd, **more)
        try:
            return Confined(ended, json.loads(report.read_text()))
        except (OSError, ValueError) as error:
            return Confined(ended, None, str(error).replace(folder, ""))


def wrong_layers(report: dict, method: str) -> str | None:
    said = report.get("enforced", "")
    if method not in LAYERS:
        return None if said not in ("", "none") else f"enforced is {said!r}"
    required, optional = LAYERS[method]
    parts = set(said.split("+"))
    if required <= parts <= required | optional:
        return None
    return f"enforced is {said!r}, asked for {method}"


def swing_mib(gpu: dict) -> float | None:
    low, high = gpu.get("memory_min_bytes"), gpu.get("memory_max_bytes")
    return None if low is None or high is None else (high - low) / nvml.MIB


def foreign_pids(gpu: dict) -> list[int]:
    """Processes on a GPU that are not the job's: memory that moves may be theirs."""
    return [entry["pid"] for entry in gpu.get("processes", []) if not entry.get("of_job", False)]


def wrongs(confined: Confined, method: str, refused: list[nvml.Gpu]) -> list[str]:
    """What the report says that must not be: empty when every refused GPU was left alone."""
    if confined.report is None:
        return [f"no report: {confined.why_none}; {' / '.join(confined.ended.tail(3))}"]
    problems = []
    if problem := wrong_layers(confined.report, method):
        problems.append(problem)
    for gpu in refused:
        said = confined.gpu(gpu.index)
        if said is None:
            problems.append(f"the report has no GPU {gpu.index}")
            continue
        if said.get("allowed") is not False:
            problems.append(f"GPU {gpu.index}: allowed is {said.get('allowed')}")
        if said.get("contexts") != 0:
            problems.append(f"GPU {gpu.index}: contexts is {said.get('contexts')}, wanted 0")
        if said.get("touched") is not False:
            problems.append(f"GPU {gpu.index}: touched is {said.get('touched')}, wanted false")
        swing = swing_mib(said)
        if swing is None:
            problems.append(f"GPU {gpu.index}: its memory was not measured")
        elif swing != 0:
            others = foreign_pids(said)
            whose = f"; others there: {others}" if others else "; no other process there"
            problems.append(f"GPU {gpu.index}: memory moved by {swing:.2f} MiB{whose}")
        if gpu.node() not in confined.report.get("refused", []):
            problems.append(f"{gpu.node()} is not among the refused nodes: {confined.report.get('refused')}")
    return problems


def disturbed(confined: Confined, refused: list[nvml.Gpu]) -> bool:
    """Whether another process was on a refused GPU during the run: then its numbers say nothing."""
    reports = [confined.gpu(gpu.index) for gpu in refused]
    return any(said is not None and foreign_pids(said) for said in reports)

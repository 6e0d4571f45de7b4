#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every case as it is, and under `corral run --gpus LAST`: is GPU 0 left alone, and the result the same?

Each case runs plain first, and then as written under each method. Cases that name cuda:1 must end
with the framework's own error there: the one GPU they were given is cuda:0. Under --tight those run
as a user would adapt them, so that the whole script is gone through.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import shutil
import statistics
import sys
import tempfile

import case_files
import confined
import nvml
import process
import results

PLAIN_LIMIT_S = 60
CONFINED_LIMIT_S = 60
WORKING_UNDER_TIGHT = ("cuinit_only_control", "torch_env_after_init", "torch_pick_free_gpu", "jax_env_late")


def run_plain(case: case_files.Case, gpus: nvml.Nvml) -> tuple[process.Ended, float]:
    """How it ended, and by how many MiB the memory of GPU 0 moved."""
    with nvml.Watch(gpus, [0]) as watch:
        ended = process.run([sys.executable, str(case.path)], limit_s=PLAIN_LIMIT_S, env=process.clean_environment())
    return ended, nvml.swing_mib(watch.samples[0])


def check_plain(part: results.Part, case: case_files.Case, ended: process.Ended) -> None:
    """The case must still stray, or keep still, as its head says: else being confined shows nothing."""
    lines = case_files.printed(ended.stdout)
    problems = [] if ended.code == 0 else [f"exit {ended.shell_code()}: {' / '.join(ended.tail(2))}"]
    strays = case.stray_gpus()
    looked_for = strays[0] if strays else 0
    there = any(looked_for in (line["contexts"] or []) for line in lines if not line["role"].startswith("rank 0"))
    if there != bool(strays):
        problems.append(f"contexts {[line['contexts'] for line in lines]}, its head says: strays to {case.strays_to}")
    part.check(f"{case.name}: as it is", not problems, "; ".join(problems))


def wrong_outcome(case: case_files.Case, plain: process.Ended, ended: process.Ended, adapted: bool) -> list[str]:
    if ended.timed_out:
        return [f"ran into its limit of {CONFINED_LIMIT_S} s"]
    if case.fails_with is not None and not adapted:
        if ended.code == 0:
            return [f"ended with 0, wanted an error with {case.fails_with!r}"]
        if not re.search(case.fails_with, ended.stderr):
            return [f"no {case.fails_with!r} in its errors: {' / '.join(ended.tail(3))}"]
        return []
    problems = []
    if ended.code != plain.code:
        problems.append(f"exit {ended.shell_code()}, plain {plain.shell_code()}: {' / '.join(ended.tail(3))}")
    mine, wanted = case_files.own_results(ended.stdout), case_files.own_results(plain.stdout)
    if adapted:  # fewer ranks than the plain run
        wanted = wanted[: len(mine)]
    if mine != wanted or not mine:
        problems.append(f"result {mine}, plain {wanted}")
    return problems


class Runner:
    def __init__(self, part: results.Part, gpus: nvml.Nvml, folder: pathlib.Path) -> None:
        self.part = part
        self.nvml = gpus
        self.folder = folder
        self.allowed = gpus.gpus[-1]
        self.refused = gpus.gpus[:-1]
        self.plain_swing: dict[str, float] = {}
        self.rows: list[list] = []
        self.entries: list[dict] = []
        self.power_above_before: dict[str, list[float]] = {}

    def script(self, case: case_files.Case, adapted: bool) -> pathlib.Path:
        if not adapted:
            return case.path
        path = self.folder / case.path.name
        path.write_text(case.adapted_text())
        return path

    def confined(self, case: case_files.Case, method: str, plain: process.Ended, adapted: bool) -> None:
        what = f"{case.name}: {method}{' adapted' if adapted else ''}"
        if not self.part.has_time_for(12, what):
            return
        options = ["--gpus", str(self.allowed.index), *confined.method_options(method)]
        command = [sys.executable, str(self.script(case, adapted))]
        for _ in range(2):  # once more when another process got in the way
            with nvml.Watch(self.nvml, [gpu.index for gpu in self.refused]) as watch:
                run = confined.run(options, command, limit_s=CONFINED_LIMIT_S, env=process.clean_environment())
            if not confined.disturbed(run, self.refused):
                break
        problems = confined.wrongs(run, method, self.refused)
        problems += wrong_outcome(case, plain, run.ended, adapted)
        lines = case_files.printed(run.ended.stdout)
        own_contexts = sorted({gpu for line in lines for gpu in line["contexts"] or []})
        if not set(own_contexts) <= {self.allowed.index}:
            problems.append(f"the script itself sees contexts on {own_contexts}")
        held = {minor for line in lines for minor in line["devices"]}
        if forbidden := held & {gpu.minor for gpu in self.refused}:
            problems.append(f"the script holds /dev/nvidia{forbidden} open")
        seen_swing = max(nvml.swing_mib(samples) for samples in watch.samples.values())
        if seen_swing != 0 and not confined.disturbed(run, self.refused):
            problems.append(f"measured from outside, memory moved by {seen_swing:.2f} MiB")
        self.part.check(what, not problems, "; ".join(problems))
        self.note(case, method, plain, adapted, run, seen_swing, problems)

    def note(self, case, method, plain, adapted, run: confined.Confined, seen_swing: float, problems) -> None:
        first = run.gpu(self.refused[0].index) or {}
        mean, before = first.get("power_mean_w"), first.get("power_before_w")
        if mean is not None and before is not None:
            self.power_above_before.setdefault(method, []).append(mean - before)
        expected = "same result" if adapted or case.fails_with is None else f"error: {case.fails_with}"
        report = run.report or {}
        self.rows.append(
            [
                case.name + (" (adapted)" if adapted else ""),
                method,
                report.get("enforced"),
                f"{plain.shell_code()} → {run.ended.shell_code()}",
                expected,
                first.get("contexts"),
                {True: "yes", False: "no"}.get(first.get("touched")),
                f"{self.plain_swing[case.name]:.0f}",
                f"{seen_swing:.0f} / {'-' if (by_corral := confined.swing_mib(first)) is None else f'{by_corral:.0f}'}",
                len(report.get("refused", [])),
                "passed" if not problems else "**FAILED**",
            ]
        )
        self.entries.append(
            {
                "case": case.name,
                "method": method,
                "adapted": adapted,
                "exit": run.ended.shell_code(),
                "wall_s": round(run.ended.wall_s, 2),
                "problems": problems,
                "report": {k: report.get(k) for k in ("enforced", "layers", "refused", "gpus", "coverage", "notes")},
                "stderr": run.ended.tail() if problems else [],
            }
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="", help="names with commas between; default: all")
    parser.add_argument("--methods", default="cgroup,landlock,tight")
    parser.add_argument("--limit-s", type=float, default=540)
    arguments = parser.parse_args()
    cases = case_files.choose(case_files.load_all(), arguments.cases)
    methods = arguments.methods.split(",")
    if unknown := set(methods) - set(confined.LAYERS):
        raise SystemExit(f"--methods: no method {', '.join(sorted(unknown))}; there are {', '.join(confined.LAYERS)}")
    gpus = nvml.two_gpus()
    title = f"Cases that stray, under `corral run --gpus {gpus.gpus[-1].index}`"
    with results.Part("cases", title, arguments.limit_s, gpus) as part, tempfile.TemporaryDirectory() as folder:
        runner = Runner(part, gpus, pathlib.Path(folder))
        shutil.copy(process.CASES / "_contexts.py", folder)
        plain = {}
        for case in cases:
            if part.has_time_for(10, f"{case.name}: as it is"):
                plain[case.name], runner.plain_swing[case.name] = run_plain(case, gpus)
                check_plain(part, case, plain[case.name])
        idle_w = nvml.settle(gpus, 0, idle_w=None, limit_s=25)
        for method in methods:
            for case in cases:
                adapted = method == "tight" and case.adapted is not None
                chosen = method != "tight" or adapted or case.name in WORKING_UNDER_TIGHT
                if chosen and case.name in plain:
                    runner.confined(case, method, plain[case.name], adapted)
        describe(part, runner, idle_w)
    return part.exit_code()


def describe(part: results.Part, runner: Runner, idle_w: float | None) -> None:
    head = ["case", "method", "enforced", "exit plain → confined", "wanted", "GPU 0 contexts", "GPU 0 touched",
            "GPU 0 memory swing MiB, plain", "confined: from outside / by corral", "nodes refused", "verdict"]  # fmt: skip
    part.section("## Cases\n\n" + results.table(head, runner.rows))
    power = []
    for method, differences in runner.power_above_before.items():
        median = statistics.median(differences)
        power.append([method, len(differences), median, min(differences), max(differences)])
        part.check(f"power of GPU 0 under {method} is within 1 W of before", abs(median) <= 1, f"median {median:+.2f} W")
    part.section(
        f"## Power of GPU 0\n\nAfter the plain runs it settled at {idle_w or 0:.1f} W. Mean during a run less the last "
        "reading before it, by corral, in W:\n\n" + results.table(["method", "runs", "median", "least", "most"], power)
    )
    part.data["runs"] = runner.entries
    part.data["plain_swing_mib"] = runner.plain_swing
    part.does_not_show("that code which tries to get out is held: that is `holes`")
    part.does_not_show("one run of each case and method; a case that names cuda:1 stops early when run as written")
    part.does_not_show("power: a run of three to five seconds with a reading that renews itself 21 times a second")


if __name__ == "__main__":
    sys.exit(main())

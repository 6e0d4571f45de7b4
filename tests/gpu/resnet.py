#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ResNet-50 on the last GPU, as it is and under `corral run`: speed, and what GPU 0 pays.

Four arms run the same program. In pairs, in the order A B B A:
  variable   only the last GPU named in CUDA_VISIBLE_DEVICES, no stray
  corral     the same under corral run --gpus LAST
  stray      nothing set, a tensor on the default device every 20 steps
  held       the same stray script under corral run --gpus LAST
GPU 0 is measured from here, through NVML, in all of them alike.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import statistics
import sys

import confined
import nvml
import process
import results

STRAY_EVERY = 20
SETTLE_S = 25
# What one run takes beside the timed seconds: imports, warm-up, end.
OTHER_S = 25
LEAST_SPEED_RATIO = 0.99


@dataclasses.dataclass
class Outcome:
    arm: str
    speed: float
    idle_w: float | None
    memory_min_mib: float
    memory_max_mib: float
    power_w: float | None
    sm_mhz: float | None
    problems: list[str]
    report: dict | None


class Bench:
    def __init__(self, part: results.Part, gpus: nvml.Nvml, seconds: float) -> None:
        self.part = part
        self.nvml = gpus
        self.seconds = seconds
        self.last = gpus.gpus[-1]
        self.idle_w = nvml.settle(gpus, 0, idle_w=None, limit_s=SETTLE_S)
        self.outcomes: list[Outcome] = []

    def command(self, arm: str) -> list[str]:
        program = [sys.executable, str(process.PROGRAMS / "resnet50.py"), "--seconds", str(self.seconds)]
        stray = ["--stray-every", str(STRAY_EVERY)] if arm in ("stray", "held") else []
        return [*program, "--device", "last", *stray]

    def start(self, arm: str) -> tuple[process.Ended, confined.Confined | None]:
        limit_s = self.seconds + 60
        if arm in ("corral", "held"):
            options = ["--gpus", str(self.last.index)]
            run = confined.run(options, self.command(arm), limit_s=limit_s, env=process.clean_environment())
            return run.ended, run
        env = process.clean_environment(CUDA_DEVICE_ORDER="PCI_BUS_ID")
        if arm == "variable":
            env["CUDA_VISIBLE_DEVICES"] = self.last.uuid
        return process.run(self.command(arm), limit_s=limit_s, env=env), None

    def run(self, arm: str) -> None:
        what = f"{arm}: run {1 + sum(outcome.arm == arm for outcome in self.outcomes)}"
        if not self.part.has_time_for(self.seconds + OTHER_S, what):
            return
        idle_w = nvml.settle(self.nvml, 0, idle_w=self.idle_w, limit_s=SETTLE_S)
        with nvml.Watch(self.nvml, [0]) as watch:
            ended, run = self.start(arm)
        numbers = dict(re.findall(r"^(window|iter/s) (.+)$", ended.stdout, re.MULTILINE))
        if ended.code != 0 or len(numbers) != 2:
            self.part.check(what, False, f"exit {ended.shell_code()}: {' / '.join(ended.tail(4))}")
            return
        outcome = self.judge(arm, numbers, idle_w, watch.samples[0], run)
        self.part.check(what, not outcome.problems, "; ".join(outcome.problems))
        self.outcomes.append(outcome)
        print(f"{what}: {outcome.speed:.2f} iter/s, GPU 0 {outcome.power_w or 0:.1f} W", flush=True)

    def judge(self, arm, numbers, idle_w, samples, run: confined.Confined | None) -> Outcome:
        began, ended = map(float, numbers["window"].split())
        timed = [sample for sample in samples if began <= sample.time_s <= ended]
        memory = [sample.memory_mib for sample in samples]
        problems = []
        if run is not None:
            problems = confined.wrongs(run, "auto", self.nvml.gpus[:-1])
            if nvml.swing_mib(samples) != 0:
                problems.append(f"measured from outside, memory of GPU 0 moved by {nvml.swing_mib(samples):.2f} MiB")
        return Outcome(
            arm,
            float(numbers["iter/s"]),
            idle_w,
            min(memory),
            max(memory),
            nvml.mean(sample.power_w for sample in timed),
            nvml.mean(sample.sm_mhz for sample in timed),
            problems,
            None if run is None else run.gpu(0),
        )

    def of(self, arm: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.arm == arm]

    def median(self, arm: str, field: str) -> float | None:
        known = [value for outcome in self.of(arm) if (value := getattr(outcome, field)) is not None]
        return statistics.median(known) if known else None


def turns(first: str, second: str, pairs: int) -> list[str]:
    """A B, B A, A B, …: a machine that gets warmer or slower does so for both."""
    order = []
    for pair in range(pairs):
        order += [first, second] if pair % 2 == 0 else [second, first]
    return order


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3, help="of variable and corral; default: 3")
    parser.add_argument("--stray-pairs", type=int, default=1, help="of stray and held; default: 1")
    parser.add_argument("--seconds", type=float, default=18, help="timed part of each run; default: 18")
    parser.add_argument("--limit-s", type=float, default=560)
    arguments = parser.parse_args()
    gpus = nvml.two_gpus()
    title = f"ResNet-50 on GPU {gpus.gpus[-1].index}, as it is and under `corral run`"
    with results.Part("resnet", title, arguments.limit_s, gpus) as part:
        bench = Bench(part, gpus, arguments.seconds)
        try:
            for arm in turns("variable", "corral", arguments.pairs) + turns("stray", "held", arguments.stray_pairs):
                bench.run(arm)
        finally:
            describe(bench)
    return part.exit_code()


def row(bench: Bench, arm: str) -> list:
    outcomes = bench.of(arm)
    low, high = min(o.memory_min_mib for o in outcomes), max(o.memory_max_mib for o in outcomes)
    swing = max(o.memory_max_mib - o.memory_min_mib for o in outcomes)
    medians = [bench.median(arm, field) for field in ("speed", "power_w", "idle_w", "sm_mhz")]
    return [arm, len(outcomes), *medians[:3], f"{low:.0f}-{high:.0f}", swing, medians[3]]


def describe(bench: Bench) -> None:
    part = bench.part
    arms = [arm for arm in ("variable", "corral", "stray", "held") if bench.of(arm)]
    head = ["arm", "runs", "iter/s", "GPU 0 power W", "idle before W", "GPU 0 memory MiB", "swing MiB",
            "GPU 0 SM clock MHz"]  # fmt: skip
    legend = (
        f"batch 128, bf16 autocast, channels_last, made-up images, {bench.seconds:g} s timed a run; medians. `variable`: "
        "only the last GPU in CUDA_VISIBLE_DEVICES; `corral`: the same program under `corral run`; `stray`: nothing "
        f"set, a default-device tensor every {STRAY_EVERY} steps; `held`: that under `corral run`. Power and clock over "
        "the timed part, memory over the whole run; measured by the driver of this test, not by Corral."
    )
    part.section(f"## Numbers\n\n{legend}\n\n" + results.table(head, [row(bench, arm) for arm in arms]))
    order = [[n, o.arm, o.speed, o.power_w, o.idle_w] for n, o in enumerate(bench.outcomes, 1)]
    part.section("## Every run, in order\n\n" + results.table(["", "arm", "iter/s", "GPU 0 W", "idle W"], order))
    ratios(bench)
    own_report(bench)
    part.data["runs"] = [dataclasses.asdict(outcome) for outcome in bench.outcomes]
    part.does_not_show("other models, several GPUs, or a job that is bound by its input")
    part.does_not_show("a difference in speed smaller than that between two runs of one arm (see the list)")


def ratios(bench: Bench) -> None:
    lines = []
    for first, second in (("variable", "corral"), ("stray", "held")):
        before, after = bench.median(first, "speed"), bench.median(second, "speed")
        if before is None or after is None:
            continue
        lines.append(f"* speed of `{second}` over `{first}`: {after / before:.4f} (medians)")
        if first == "variable":
            what = f"speed under corral is at least {LEAST_SPEED_RATIO} of the speed without"
            bench.part.check(what, after / before >= LEAST_SPEED_RATIO, f"{after / before:.4f}")
    plain, held = bench.median("variable", "power_w"), bench.median("corral", "power_w")
    if plain is not None and held is not None:
        lines.append(f"* power of GPU 0, `corral` less `variable`: {held - plain:+.2f} W")
        bench.part.check("GPU 0 draws within 1 W of what it draws beside a clean job", abs(held - plain) <= 1)
    stray, held = bench.median("stray", "power_w"), bench.median("held", "power_w")
    if stray is not None and held is not None:
        lines.append(f"* power of GPU 0, `held` less `stray`: {held - stray:+.2f} W")
    bench.part.section("## Compared\n\n" + "\n".join(lines))


def own_report(bench: Bench) -> None:
    rows = [
        [
            outcome.arm,
            outcome.report.get("contexts"),
            outcome.report.get("touched"),
            confined.swing_mib(outcome.report),
            outcome.report.get("power_before_w"),
            outcome.report.get("power_mean_w"),
            outcome.report.get("sm_clock_mean_mhz"),
        ]
        for outcome in bench.outcomes
        if outcome.report is not None
    ]
    head = ["arm", "contexts", "touched", "memory swing MiB", "power before W", "power mean W", "SM clock MHz"]
    bench.part.section("## What Corral's own report says of GPU 0\n\n" + results.table(head, rows))


if __name__ == "__main__":
    sys.exit(main())

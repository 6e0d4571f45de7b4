#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The frameworks people use, under `corral run`: the same output, the same exit code, all of it seen.

Each program prints one line that is known beforehand. Under Corral its stdout must be that line and
nothing more. Contexts and coverage come from Corral's report.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import pathlib
import socket
import sys

import confined
import nvml
import process
import results

METHODS = ("auto", "landlock", "mount", "tight")
# A node that exists everywhere and that no framework opens: refusing it puts the job into a real
# confinement with all GPUs in it.
HARMLESS = "/dev/full"


@dataclasses.dataclass
class Program:
    name: str
    needs: str  # the module without which it is not run
    prints: str
    methods: tuple[str, ...] = METHODS
    limit_s: float = 60


PROGRAMS = [
    Program("torch_train", "torch", "2.000 -1.000"),
    Program("torch_profile", "torch", "kernels 2097152"),
    Program("jax_matmul", "jax", "gpu 576.0"),
    Program("cupy_kernel", "cupy", "1498500"),
    Program("numba_copy", "numba", "499500"),
    Program("triton_add", "triton", "999000"),
    Program("cuda_python", "cuda.bindings", "7000"),
    Program("torch_compile", "torch", "4096.0", methods=("auto", "tight"), limit_s=120),
]


def available(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Runner:
    def __init__(self, part: results.Part, gpus: nvml.Nvml) -> None:
        self.part = part
        self.last = gpus.gpus[-1]
        self.refused = gpus.gpus[:-1]
        self.all = gpus.gpus
        self.rows: list[list] = []
        self.entries: list[dict] = []

    def one(self, program: Program) -> None:
        command = [sys.executable, str(process.PROGRAMS / f"{program.name}.py")]
        if self.part.has_time_for(10, f"{program.name}: as it is"):
            ended = process.run(command, limit_s=program.limit_s, env=process.clean_environment())
            self.judge(program.name, "as it is", program.prints, ended, None, [])
        for method in program.methods:
            if not self.part.has_time_for(10, f"{program.name}: {method}"):
                continue
            options = ["--gpus", str(self.last.index), *confined.method_options(method)]
            options += [] if self.refused else ["--refuse", HARMLESS]
            run = confined.run(options, command, limit_s=program.limit_s, env=process.clean_environment())
            problems = confined.wrongs(run, method, self.refused)
            problems += unseen(run, [self.last])
            self.judge(program.name, method, program.prints, run.ended, run.report, problems)

    def nccl(self) -> None:
        """All GPUs, one rank each: plain, only watched over, and inside each kind of confinement."""
        count = len(self.all)
        prints = f"{count} ranks, sum {count * (count + 1) // 2}"
        ways = {
            "all": ["--gpus", "all"],
            "all, landlock": ["--gpus", "all", "--enforce", "landlock", "--refuse", HARMLESS],
            "all, cgroup": ["--gpus", "all", "--enforce", "cgroup", "--refuse", HARMLESS],
            "all, mount": ["--gpus", "all", "--enforce", "mount", "--refuse", HARMLESS],
            "all, tight": ["--gpus", "all", "--tight", "--refuse", HARMLESS],
        }
        for way, options in {"as it is": None, **ways}.items():
            if not self.part.has_time_for(20, f"nccl_allreduce: {way}"):
                continue
            command = [
                sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", str(count),
                "--master-addr", "127.0.0.1", "--master-port", str(free_port()),
                str(process.PROGRAMS / "nccl_allreduce.py"),
            ]  # fmt: skip
            if options is None:
                ended = process.run(command, limit_s=90, env=process.clean_environment())
                self.judge("nccl_allreduce", way, prints, ended, None, [])
                continue
            run = confined.run(options, command, limit_s=90, env=process.clean_environment())
            problems = unseen(run, self.all)
            if run.report is not None and HARMLESS in options and HARMLESS not in run.report.get("refused", []):
                problems.append(f"{HARMLESS} is not among the refused nodes: the job was not confined")
            if any(context.get("stray") for context in (run.report or {}).get("contexts", [])):
                problems.append("a context is called a stray, with every GPU allowed")
            self.judge("nccl_allreduce", way, prints, run.ended, run.report, problems)

    def judge(self, name, way, prints, ended: process.Ended, report: dict | None, problems: list[str]) -> None:
        problems = list(problems)
        if ended.timed_out:
            problems.append(f"ran into its limit after {ended.wall_s:.0f} s")
        if ended.code != 0:
            problems.append(f"exit {ended.shell_code()}: {' / '.join(ended.tail(4))}")
        if ended.stdout != prints + "\n":
            problems.append(f"stdout is {ended.stdout[-200:]!r}, wanted {prints!r}")
        self.part.check(f"{name}: {way}", not problems, "; ".join(problems))
        report = report or {}
        coverage = report.get("coverage", {})
        per_gpu = ", ".join(f"{gpu['index']}: {gpu.get('contexts')}" for gpu in report.get("gpus", []))
        seen = f"{coverage.get('observed')} of {coverage.get('processes')}" if coverage else None
        self.rows.append([name, way, report.get("enforced"), ended.shell_code(), ended.stdout.strip()[:40],
                          per_gpu or None, seen, authors(report), round(ended.wall_s, 1),
                          "passed" if not problems else "**FAILED**"])  # fmt: skip
        self.entries.append(
            {
                "program": name,
                "way": way,
                "exit": ended.shell_code(),
                "wall_s": round(ended.wall_s, 2),
                "problems": problems,
                "enforced": report.get("enforced"),
                "contexts": report.get("contexts"),
                "coverage": coverage,
                "stderr": ended.tail() if problems else [],
            }
        )


def unseen(run: confined.Confined, working: list[nvml.Gpu]) -> list[str]:
    """Did the observing library see every process that used the driver, and its contexts?"""
    if run.report is None:
        return []  # said already by whoever wanted the report
    problems = []
    coverage = run.report.get("coverage", {})
    if coverage.get("unobserved"):
        problems.append(f"not observed: {coverage['unobserved']}")
    if not coverage.get("observed"):
        problems.append("no process was observed")
    if coverage.get("records_lost"):
        problems.append(f"{coverage['records_lost']} records were lost")
    for gpu in working:
        if not (run.gpu(gpu.index) or {}).get("contexts"):
            problems.append(f"no context was seen on GPU {gpu.index}, where the work was done")
    return problems


def authors(report: dict) -> str | None:
    """The lines that made the contexts."""
    lines = []
    for context in report.get("contexts", []):
        culprit = context.get("culprit")
        if culprit is None:
            lines.append(context.get("call", "?"))
        else:
            lines.append(f"{pathlib.PurePath(culprit['file']).name}:{culprit['line']}")
    return ", ".join(dict.fromkeys(lines)) or None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default="", help="names with commas between; default: all and nccl_allreduce")
    parser.add_argument("--limit-s", type=float, default=420)
    arguments = parser.parse_args()
    gpus = nvml.Nvml()
    names = arguments.programs.split(",") if arguments.programs else [p.name for p in PROGRAMS] + ["nccl_allreduce"]
    if unknown := set(names) - {p.name for p in PROGRAMS} - {"nccl_allreduce"}:
        raise SystemExit(f"--programs: no program {', '.join(sorted(unknown))}")
    with results.Part("frameworks", "Frameworks under `corral run`", arguments.limit_s, gpus) as part:
        runner = Runner(part, gpus)
        absent = []
        try:
            if "nccl_allreduce" in names:
                runner.nccl()
            for program in PROGRAMS:
                if program.name not in names:
                    continue
                if available(program.needs):
                    runner.one(program)
                else:
                    absent.append(f"{program.name} (no {program.needs} here)")
        finally:
            describe(part, runner, absent)
    return part.exit_code()


def describe(part: results.Part, runner: Runner, absent: list[str]) -> None:
    head = ["program", "way", "enforced", "exit", "stdout", "contexts on GPU", "observed processes",
            "made by", "wall s", "verdict"]  # fmt: skip
    part.section("## Programs\n\n" + results.table(head, runner.rows))
    part.data["runs"] = runner.entries
    if absent:
        part.does_not_show("not run: " + ", ".join(absent))
    if len(runner.all) == 1:
        part.does_not_show(f"GPUs that are refused: this machine has one, and {HARMLESS} was refused in their place")
    part.does_not_show("long training, several hosts, NVLink multicast (switched off), or other versions")
    part.does_not_show("wall times to compare: one run each, with compile caches that the first run filled")


if __name__ == "__main__":
    sys.exit(main())
